"""Memory: buffers at the peak, and the allocator."""
