from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AxisRef(_message.Message):
    __slots__ = ["mesh_axis_index", "sub_axis_info"]
    class SubAxis(_message.Message):
        __slots__ = ["pre_size", "size"]
        PRE_SIZE_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        pre_size: int
        size: int
        def __init__(self, pre_size: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...
    MESH_AXIS_INDEX_FIELD_NUMBER: _ClassVar[int]
    SUB_AXIS_INFO_FIELD_NUMBER: _ClassVar[int]
    mesh_axis_index: int
    sub_axis_info: AxisRef.SubAxis
    def __init__(self, mesh_axis_index: _Optional[int] = ..., sub_axis_info: _Optional[_Union[AxisRef.SubAxis, _Mapping]] = ...) -> None: ...

class BufferAllocation(_message.Message):
    __slots__ = ["assigned", "color", "index", "is_constant", "is_entry_computation_parameter", "is_thread_local", "maybe_live_out", "parameter_number", "size"]
    class Assigned(_message.Message):
        __slots__ = ["logical_buffer_id", "offset", "size"]
        LOGICAL_BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        logical_buffer_id: int
        offset: int
        size: int
        def __init__(self, logical_buffer_id: _Optional[int] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    COLOR_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    IS_CONSTANT_FIELD_NUMBER: _ClassVar[int]
    IS_ENTRY_COMPUTATION_PARAMETER_FIELD_NUMBER: _ClassVar[int]
    IS_THREAD_LOCAL_FIELD_NUMBER: _ClassVar[int]
    MAYBE_LIVE_OUT_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    assigned: _containers.RepeatedCompositeFieldContainer[BufferAllocation.Assigned]
    color: int
    index: int
    is_constant: bool
    is_entry_computation_parameter: bool
    is_thread_local: bool
    maybe_live_out: bool
    parameter_number: int
    size: int
    def __init__(self, index: _Optional[int] = ..., size: _Optional[int] = ..., is_thread_local: bool = ..., is_entry_computation_parameter: bool = ..., parameter_number: _Optional[int] = ..., maybe_live_out: bool = ..., color: _Optional[int] = ..., assigned: _Optional[_Iterable[_Union[BufferAllocation.Assigned, _Mapping]]] = ..., is_constant: bool = ...) -> None: ...

class BufferAssignment(_message.Message):
    __slots__ = ["buffer_allocations", "heap_simulator_traces", "logical_buffers"]
    BUFFER_ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    HEAP_SIMULATOR_TRACES_FIELD_NUMBER: _ClassVar[int]
    LOGICAL_BUFFERS_FIELD_NUMBER: _ClassVar[int]
    buffer_allocations: _containers.RepeatedCompositeFieldContainer[BufferAllocation]
    heap_simulator_traces: _containers.RepeatedScalarFieldContainer[bytes]
    logical_buffers: _containers.RepeatedCompositeFieldContainer[LogicalBuffer]
    def __init__(self, logical_buffers: _Optional[_Iterable[_Union[LogicalBuffer, _Mapping]]] = ..., buffer_allocations: _Optional[_Iterable[_Union[BufferAllocation, _Mapping]]] = ..., heap_simulator_traces: _Optional[_Iterable[bytes]] = ...) -> None: ...

class BufferDonor(_message.Message):
    __slots__ = ["entries"]
    class Entry(_message.Message):
        __slots__ = ["parameter_number", "parameter_shape_index"]
        PARAMETER_NUMBER_FIELD_NUMBER: _ClassVar[int]
        PARAMETER_SHAPE_INDEX_FIELD_NUMBER: _ClassVar[int]
        parameter_number: int
        parameter_shape_index: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, parameter_number: _Optional[int] = ..., parameter_shape_index: _Optional[_Iterable[int]] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[BufferDonor.Entry]
    def __init__(self, entries: _Optional[_Iterable[_Union[BufferDonor.Entry, _Mapping]]] = ...) -> None: ...

class CollectiveDeviceList(_message.Message):
    __slots__ = ["iota_replica_group_list", "replica_groups"]
    IOTA_REPLICA_GROUP_LIST_FIELD_NUMBER: _ClassVar[int]
    REPLICA_GROUPS_FIELD_NUMBER: _ClassVar[int]
    iota_replica_group_list: IotaReplicaGroupList
    replica_groups: _containers.RepeatedCompositeFieldContainer[ReplicaGroup]
    def __init__(self, replica_groups: _Optional[_Iterable[_Union[ReplicaGroup, _Mapping]]] = ..., iota_replica_group_list: _Optional[_Union[IotaReplicaGroupList, _Mapping]] = ...) -> None: ...

class ConvolutionDimensionNumbers(_message.Message):
    __slots__ = ["input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions", "kernel_input_feature_dimension", "kernel_output_feature_dimension", "kernel_spatial_dimensions", "output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"]
    INPUT_BATCH_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    INPUT_FEATURE_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SPATIAL_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_INPUT_FEATURE_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    KERNEL_OUTPUT_FEATURE_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SPATIAL_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BATCH_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FEATURE_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SPATIAL_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: _containers.RepeatedScalarFieldContainer[int]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: _containers.RepeatedScalarFieldContainer[int]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kernel_input_feature_dimension: _Optional[int] = ..., kernel_output_feature_dimension: _Optional[int] = ..., kernel_spatial_dimensions: _Optional[_Iterable[int]] = ..., input_batch_dimension: _Optional[int] = ..., input_feature_dimension: _Optional[int] = ..., output_batch_dimension: _Optional[int] = ..., output_feature_dimension: _Optional[int] = ..., input_spatial_dimensions: _Optional[_Iterable[int]] = ..., output_spatial_dimensions: _Optional[_Iterable[int]] = ...) -> None: ...

class DeviceAssignment(_message.Message):
    __slots__ = ["computation_count", "computation_devices", "replica_count"]
    class ComputationDevice(_message.Message):
        __slots__ = ["replica_device_ids"]
        REPLICA_DEVICE_IDS_FIELD_NUMBER: _ClassVar[int]
        replica_device_ids: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, replica_device_ids: _Optional[_Iterable[int]] = ...) -> None: ...
    COMPUTATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMPUTATION_DEVICES_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    computation_count: int
    computation_devices: _containers.RepeatedCompositeFieldContainer[DeviceAssignment.ComputationDevice]
    replica_count: int
    def __init__(self, replica_count: _Optional[int] = ..., computation_count: _Optional[int] = ..., computation_devices: _Optional[_Iterable[_Union[DeviceAssignment.ComputationDevice, _Mapping]]] = ...) -> None: ...

class DotDimensionNumbers(_message.Message):
    __slots__ = ["lhs_batch_dimensions", "lhs_contracting_dimensions", "rhs_batch_dimensions", "rhs_contracting_dimensions"]
    LHS_BATCH_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    LHS_CONTRACTING_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    RHS_BATCH_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    RHS_CONTRACTING_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    lhs_batch_dimensions: _containers.RepeatedScalarFieldContainer[int]
    lhs_contracting_dimensions: _containers.RepeatedScalarFieldContainer[int]
    rhs_batch_dimensions: _containers.RepeatedScalarFieldContainer[int]
    rhs_contracting_dimensions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lhs_contracting_dimensions: _Optional[_Iterable[int]] = ..., rhs_contracting_dimensions: _Optional[_Iterable[int]] = ..., lhs_batch_dimensions: _Optional[_Iterable[int]] = ..., rhs_batch_dimensions: _Optional[_Iterable[int]] = ...) -> None: ...

class FileLocation(_message.Message):
    __slots__ = ["column", "file_name_id", "line"]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    FILE_NAME_ID_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    column: int
    file_name_id: int
    line: int
    def __init__(self, file_name_id: _Optional[int] = ..., line: _Optional[int] = ..., column: _Optional[int] = ...) -> None: ...

class FrontendAttributes(_message.Message):
    __slots__ = ["map"]
    MAP_FIELD_NUMBER: _ClassVar[int]
    map: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, map: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GatherDimensionNumbers(_message.Message):
    __slots__ = ["offset_dims"]
    OFFSET_DIMS_FIELD_NUMBER: _ClassVar[int]
    offset_dims: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, offset_dims: _Optional[_Iterable[int]] = ...) -> None: ...

class HeapSimulatorTrace(_message.Message):
    __slots__ = ["events"]
    class Event(_message.Message):
        __slots__ = ["buffer_id", "instruction_name", "kind", "share_with_canonical_id"]
        BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
        INSTRUCTION_NAME_FIELD_NUMBER: _ClassVar[int]
        KIND_FIELD_NUMBER: _ClassVar[int]
        SHARE_WITH_CANONICAL_ID_FIELD_NUMBER: _ClassVar[int]
        buffer_id: int
        instruction_name: str
        kind: int
        share_with_canonical_id: int
        def __init__(self, kind: _Optional[int] = ..., buffer_id: _Optional[int] = ..., instruction_name: _Optional[str] = ..., share_with_canonical_id: _Optional[int] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[HeapSimulatorTrace.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[HeapSimulatorTrace.Event, _Mapping]]] = ...) -> None: ...

class HloComputation(_message.Message):
    __slots__ = ["execution_thread", "id", "instructions", "name", "root_id"]
    EXECUTION_THREAD_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROOT_ID_FIELD_NUMBER: _ClassVar[int]
    execution_thread: str
    id: int
    instructions: _containers.RepeatedCompositeFieldContainer[HloInstruction]
    name: str
    root_id: int
    def __init__(self, name: _Optional[str] = ..., instructions: _Optional[_Iterable[_Union[HloInstruction, _Mapping]]] = ..., id: _Optional[int] = ..., root_id: _Optional[int] = ..., execution_thread: _Optional[str] = ...) -> None: ...

class HloInstruction(_message.Message):
    __slots__ = ["async_execution_thread", "backend_config", "batch_group_count", "called_computation_ids", "channel_id", "collective_device_list", "comparison_direction", "control_predecessor_ids", "convolution_dimension_numbers", "custom_call_target", "dimensions", "dot_dimension_numbers", "feature_group_count", "frontend_attributes", "gather_dimension_numbers", "gather_slice_sizes", "id", "iota_collective_device_list", "literal", "mesh_axes_replica_group_list", "metadata", "name", "opcode", "operand_ids", "original_value", "output_operand_aliasing", "padding_config", "parameter_number", "precision_config", "replica_groups", "scatter_dimension_numbers", "shape", "slice_dimensions", "source_target_pairs", "statistics_viz", "tuple_index", "window"]
    ASYNC_EXECUTION_THREAD_FIELD_NUMBER: _ClassVar[int]
    BACKEND_CONFIG_FIELD_NUMBER: _ClassVar[int]
    BATCH_GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    CALLED_COMPUTATION_IDS_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_DEVICE_LIST_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_DIRECTION_FIELD_NUMBER: _ClassVar[int]
    CONTROL_PREDECESSOR_IDS_FIELD_NUMBER: _ClassVar[int]
    CONVOLUTION_DIMENSION_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_CALL_TARGET_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    DOT_DIMENSION_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    GATHER_DIMENSION_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    GATHER_SLICE_SIZES_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    IOTA_COLLECTIVE_DEVICE_LIST_FIELD_NUMBER: _ClassVar[int]
    LITERAL_FIELD_NUMBER: _ClassVar[int]
    MESH_AXES_REPLICA_GROUP_LIST_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPCODE_FIELD_NUMBER: _ClassVar[int]
    OPERAND_IDS_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_VALUE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_OPERAND_ALIASING_FIELD_NUMBER: _ClassVar[int]
    PADDING_CONFIG_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PRECISION_CONFIG_FIELD_NUMBER: _ClassVar[int]
    REPLICA_GROUPS_FIELD_NUMBER: _ClassVar[int]
    SCATTER_DIMENSION_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SLICE_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TARGET_PAIRS_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_VIZ_FIELD_NUMBER: _ClassVar[int]
    TUPLE_INDEX_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    async_execution_thread: str
    backend_config: bytes
    batch_group_count: int
    called_computation_ids: _containers.RepeatedScalarFieldContainer[int]
    channel_id: int
    collective_device_list: bytes
    comparison_direction: bytes
    control_predecessor_ids: _containers.RepeatedScalarFieldContainer[int]
    convolution_dimension_numbers: bytes
    custom_call_target: bytes
    dimensions: _containers.RepeatedScalarFieldContainer[int]
    dot_dimension_numbers: bytes
    feature_group_count: int
    frontend_attributes: FrontendAttributes
    gather_dimension_numbers: bytes
    gather_slice_sizes: _containers.RepeatedScalarFieldContainer[int]
    id: int
    iota_collective_device_list: bytes
    literal: bytes
    mesh_axes_replica_group_list: bytes
    metadata: OpMetadata
    name: str
    opcode: str
    operand_ids: _containers.RepeatedScalarFieldContainer[int]
    original_value: bytes
    output_operand_aliasing: _containers.RepeatedScalarFieldContainer[bytes]
    padding_config: bytes
    parameter_number: int
    precision_config: bytes
    replica_groups: _containers.RepeatedScalarFieldContainer[bytes]
    scatter_dimension_numbers: bytes
    shape: bytes
    slice_dimensions: _containers.RepeatedScalarFieldContainer[bytes]
    source_target_pairs: _containers.RepeatedScalarFieldContainer[bytes]
    statistics_viz: bytes
    tuple_index: int
    window: bytes
    def __init__(self, name: _Optional[str] = ..., opcode: _Optional[str] = ..., shape: _Optional[bytes] = ..., metadata: _Optional[_Union[OpMetadata, _Mapping]] = ..., literal: _Optional[bytes] = ..., parameter_number: _Optional[int] = ..., tuple_index: _Optional[int] = ..., dimensions: _Optional[_Iterable[int]] = ..., window: _Optional[bytes] = ..., convolution_dimension_numbers: _Optional[bytes] = ..., slice_dimensions: _Optional[_Iterable[bytes]] = ..., padding_config: _Optional[bytes] = ..., channel_id: _Optional[int] = ..., custom_call_target: _Optional[bytes] = ..., dot_dimension_numbers: _Optional[bytes] = ..., gather_dimension_numbers: _Optional[bytes] = ..., gather_slice_sizes: _Optional[_Iterable[int]] = ..., id: _Optional[int] = ..., operand_ids: _Optional[_Iterable[int]] = ..., control_predecessor_ids: _Optional[_Iterable[int]] = ..., called_computation_ids: _Optional[_Iterable[int]] = ..., backend_config: _Optional[bytes] = ..., scatter_dimension_numbers: _Optional[bytes] = ..., replica_groups: _Optional[_Iterable[bytes]] = ..., feature_group_count: _Optional[int] = ..., precision_config: _Optional[bytes] = ..., source_target_pairs: _Optional[_Iterable[bytes]] = ..., batch_group_count: _Optional[int] = ..., comparison_direction: _Optional[bytes] = ..., frontend_attributes: _Optional[_Union[FrontendAttributes, _Mapping]] = ..., output_operand_aliasing: _Optional[_Iterable[bytes]] = ..., async_execution_thread: _Optional[str] = ..., statistics_viz: _Optional[bytes] = ..., collective_device_list: _Optional[bytes] = ..., original_value: _Optional[bytes] = ..., iota_collective_device_list: _Optional[bytes] = ..., mesh_axes_replica_group_list: _Optional[bytes] = ...) -> None: ...

class HloModule(_message.Message):
    __slots__ = ["buffer_donor", "computations", "device_assignment", "entry_computation_id", "input_output_alias", "spmd_parameters_shardings", "stack_frame_index"]
    BUFFER_DONOR_FIELD_NUMBER: _ClassVar[int]
    COMPUTATIONS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    ENTRY_COMPUTATION_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_OUTPUT_ALIAS_FIELD_NUMBER: _ClassVar[int]
    SPMD_PARAMETERS_SHARDINGS_FIELD_NUMBER: _ClassVar[int]
    STACK_FRAME_INDEX_FIELD_NUMBER: _ClassVar[int]
    buffer_donor: bytes
    computations: _containers.RepeatedCompositeFieldContainer[HloComputation]
    device_assignment: bytes
    entry_computation_id: int
    input_output_alias: bytes
    spmd_parameters_shardings: _containers.RepeatedScalarFieldContainer[bytes]
    stack_frame_index: bytes
    def __init__(self, computations: _Optional[_Iterable[_Union[HloComputation, _Mapping]]] = ..., entry_computation_id: _Optional[int] = ..., input_output_alias: _Optional[bytes] = ..., spmd_parameters_shardings: _Optional[_Iterable[bytes]] = ..., device_assignment: _Optional[bytes] = ..., stack_frame_index: _Optional[bytes] = ..., buffer_donor: _Optional[bytes] = ...) -> None: ...

class InputOutputAlias(_message.Message):
    __slots__ = ["entries"]
    class Entry(_message.Message):
        __slots__ = ["parameter_number", "parameter_shape_index"]
        PARAMETER_NUMBER_FIELD_NUMBER: _ClassVar[int]
        PARAMETER_SHAPE_INDEX_FIELD_NUMBER: _ClassVar[int]
        parameter_number: int
        parameter_shape_index: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, parameter_number: _Optional[int] = ..., parameter_shape_index: _Optional[_Iterable[int]] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[InputOutputAlias.Entry]
    def __init__(self, entries: _Optional[_Iterable[_Union[InputOutputAlias.Entry, _Mapping]]] = ...) -> None: ...

class IotaReplicaGroupList(_message.Message):
    __slots__ = ["iota_reshape_dims", "iota_transpose_perm", "num_devices_per_group", "num_replica_groups"]
    IOTA_RESHAPE_DIMS_FIELD_NUMBER: _ClassVar[int]
    IOTA_TRANSPOSE_PERM_FIELD_NUMBER: _ClassVar[int]
    NUM_DEVICES_PER_GROUP_FIELD_NUMBER: _ClassVar[int]
    NUM_REPLICA_GROUPS_FIELD_NUMBER: _ClassVar[int]
    iota_reshape_dims: _containers.RepeatedScalarFieldContainer[int]
    iota_transpose_perm: _containers.RepeatedScalarFieldContainer[int]
    num_devices_per_group: int
    num_replica_groups: int
    def __init__(self, num_replica_groups: _Optional[int] = ..., num_devices_per_group: _Optional[int] = ..., iota_reshape_dims: _Optional[_Iterable[int]] = ..., iota_transpose_perm: _Optional[_Iterable[int]] = ...) -> None: ...

class Layout(_message.Message):
    __slots__ = ["memory_space", "minor_to_major", "tiles"]
    MEMORY_SPACE_FIELD_NUMBER: _ClassVar[int]
    MINOR_TO_MAJOR_FIELD_NUMBER: _ClassVar[int]
    TILES_FIELD_NUMBER: _ClassVar[int]
    memory_space: int
    minor_to_major: _containers.RepeatedScalarFieldContainer[int]
    tiles: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, minor_to_major: _Optional[_Iterable[int]] = ..., tiles: _Optional[_Iterable[bytes]] = ..., memory_space: _Optional[int] = ...) -> None: ...

class Literal(_message.Message):
    __slots__ = ["bf16s", "f32s", "preds", "s32s", "u32s"]
    BF16S_FIELD_NUMBER: _ClassVar[int]
    F32S_FIELD_NUMBER: _ClassVar[int]
    PREDS_FIELD_NUMBER: _ClassVar[int]
    S32S_FIELD_NUMBER: _ClassVar[int]
    U32S_FIELD_NUMBER: _ClassVar[int]
    bf16s: bytes
    f32s: _containers.RepeatedScalarFieldContainer[float]
    preds: _containers.RepeatedScalarFieldContainer[bool]
    s32s: _containers.RepeatedScalarFieldContainer[int]
    u32s: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, preds: _Optional[_Iterable[bool]] = ..., s32s: _Optional[_Iterable[int]] = ..., u32s: _Optional[_Iterable[int]] = ..., f32s: _Optional[_Iterable[float]] = ..., bf16s: _Optional[bytes] = ...) -> None: ...

class LogicalBuffer(_message.Message):
    __slots__ = ["defined_at", "id", "size"]
    class Location(_message.Message):
        __slots__ = ["instruction_id", "shape_index"]
        INSTRUCTION_ID_FIELD_NUMBER: _ClassVar[int]
        SHAPE_INDEX_FIELD_NUMBER: _ClassVar[int]
        instruction_id: int
        shape_index: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, shape_index: _Optional[_Iterable[int]] = ..., instruction_id: _Optional[int] = ...) -> None: ...
    DEFINED_AT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    defined_at: LogicalBuffer.Location
    id: int
    size: int
    def __init__(self, id: _Optional[int] = ..., size: _Optional[int] = ..., defined_at: _Optional[_Union[LogicalBuffer.Location, _Mapping]] = ...) -> None: ...

class Mesh(_message.Message):
    __slots__ = ["axes", "device_ids"]
    class Axis(_message.Message):
        __slots__ = ["name", "size"]
        NAME_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        name: bytes
        size: int
        def __init__(self, name: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...
    AXES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_IDS_FIELD_NUMBER: _ClassVar[int]
    axes: _containers.RepeatedCompositeFieldContainer[Mesh.Axis]
    device_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axes: _Optional[_Iterable[_Union[Mesh.Axis, _Mapping]]] = ..., device_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class MeshAxesReplicaGroupList(_message.Message):
    __slots__ = ["axes", "mesh"]
    AXES_FIELD_NUMBER: _ClassVar[int]
    MESH_FIELD_NUMBER: _ClassVar[int]
    axes: _containers.RepeatedCompositeFieldContainer[AxisRef]
    mesh: Mesh
    def __init__(self, mesh: _Optional[_Union[Mesh, _Mapping]] = ..., axes: _Optional[_Iterable[_Union[AxisRef, _Mapping]]] = ...) -> None: ...

class NamedSharding(_message.Message):
    __slots__ = ["dim_shardings", "manual_axes", "mesh", "replicated_axes", "tuple_shardings", "unreduced_axes"]
    class Dimension(_message.Message):
        __slots__ = ["axes", "is_closed"]
        AXES_FIELD_NUMBER: _ClassVar[int]
        IS_CLOSED_FIELD_NUMBER: _ClassVar[int]
        axes: _containers.RepeatedCompositeFieldContainer[AxisRef]
        is_closed: bool
        def __init__(self, axes: _Optional[_Iterable[_Union[AxisRef, _Mapping]]] = ..., is_closed: bool = ...) -> None: ...
    DIM_SHARDINGS_FIELD_NUMBER: _ClassVar[int]
    MANUAL_AXES_FIELD_NUMBER: _ClassVar[int]
    MESH_FIELD_NUMBER: _ClassVar[int]
    REPLICATED_AXES_FIELD_NUMBER: _ClassVar[int]
    TUPLE_SHARDINGS_FIELD_NUMBER: _ClassVar[int]
    UNREDUCED_AXES_FIELD_NUMBER: _ClassVar[int]
    dim_shardings: _containers.RepeatedCompositeFieldContainer[NamedSharding.Dimension]
    manual_axes: _containers.RepeatedCompositeFieldContainer[AxisRef]
    mesh: Mesh
    replicated_axes: _containers.RepeatedCompositeFieldContainer[AxisRef]
    tuple_shardings: _containers.RepeatedScalarFieldContainer[bytes]
    unreduced_axes: _containers.RepeatedCompositeFieldContainer[AxisRef]
    def __init__(self, tuple_shardings: _Optional[_Iterable[bytes]] = ..., mesh: _Optional[_Union[Mesh, _Mapping]] = ..., dim_shardings: _Optional[_Iterable[_Union[NamedSharding.Dimension, _Mapping]]] = ..., replicated_axes: _Optional[_Iterable[_Union[AxisRef, _Mapping]]] = ..., unreduced_axes: _Optional[_Iterable[_Union[AxisRef, _Mapping]]] = ..., manual_axes: _Optional[_Iterable[_Union[AxisRef, _Mapping]]] = ...) -> None: ...

class OpMetadata(_message.Message):
    __slots__ = ["op_name", "source_file", "source_line", "stack_frame_id"]
    OP_NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FILE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LINE_FIELD_NUMBER: _ClassVar[int]
    STACK_FRAME_ID_FIELD_NUMBER: _ClassVar[int]
    op_name: str
    source_file: str
    source_line: int
    stack_frame_id: int
    def __init__(self, op_name: _Optional[str] = ..., source_file: _Optional[str] = ..., source_line: _Optional[int] = ..., stack_frame_id: _Optional[int] = ...) -> None: ...

class OutputOperandAliasing(_message.Message):
    __slots__ = ["operand_index", "operand_shape_index", "output_shape_index"]
    OPERAND_INDEX_FIELD_NUMBER: _ClassVar[int]
    OPERAND_SHAPE_INDEX_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SHAPE_INDEX_FIELD_NUMBER: _ClassVar[int]
    operand_index: int
    operand_shape_index: _containers.RepeatedScalarFieldContainer[int]
    output_shape_index: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, output_shape_index: _Optional[_Iterable[int]] = ..., operand_index: _Optional[int] = ..., operand_shape_index: _Optional[_Iterable[int]] = ...) -> None: ...

class PaddingConfig(_message.Message):
    __slots__ = ["dimensions"]
    class Dimension(_message.Message):
        __slots__ = ["edge_padding_low", "interior_padding"]
        EDGE_PADDING_LOW_FIELD_NUMBER: _ClassVar[int]
        INTERIOR_PADDING_FIELD_NUMBER: _ClassVar[int]
        edge_padding_low: int
        interior_padding: int
        def __init__(self, edge_padding_low: _Optional[int] = ..., interior_padding: _Optional[int] = ...) -> None: ...
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    dimensions: _containers.RepeatedCompositeFieldContainer[PaddingConfig.Dimension]
    def __init__(self, dimensions: _Optional[_Iterable[_Union[PaddingConfig.Dimension, _Mapping]]] = ...) -> None: ...

class PrecisionConfig(_message.Message):
    __slots__ = ["algorithm", "operand_precision"]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    OPERAND_PRECISION_FIELD_NUMBER: _ClassVar[int]
    algorithm: int
    operand_precision: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, operand_precision: _Optional[_Iterable[int]] = ..., algorithm: _Optional[int] = ...) -> None: ...

class ReplicaGroup(_message.Message):
    __slots__ = ["replica_ids"]
    REPLICA_IDS_FIELD_NUMBER: _ClassVar[int]
    replica_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, replica_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ScatterDimensionNumbers(_message.Message):
    __slots__ = ["inserted_window_dims", "update_window_dims"]
    INSERTED_WINDOW_DIMS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_WINDOW_DIMS_FIELD_NUMBER: _ClassVar[int]
    inserted_window_dims: _containers.RepeatedScalarFieldContainer[int]
    update_window_dims: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, update_window_dims: _Optional[_Iterable[int]] = ..., inserted_window_dims: _Optional[_Iterable[int]] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ["dimensions", "element_type", "is_dynamic_dimension", "layout", "tuple_shapes"]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    IS_DYNAMIC_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    TUPLE_SHAPES_FIELD_NUMBER: _ClassVar[int]
    dimensions: _containers.RepeatedScalarFieldContainer[int]
    element_type: int
    is_dynamic_dimension: _containers.RepeatedScalarFieldContainer[bool]
    layout: Layout
    tuple_shapes: _containers.RepeatedCompositeFieldContainer[Shape]
    def __init__(self, element_type: _Optional[int] = ..., dimensions: _Optional[_Iterable[int]] = ..., tuple_shapes: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., layout: _Optional[_Union[Layout, _Mapping]] = ..., is_dynamic_dimension: _Optional[_Iterable[bool]] = ...) -> None: ...

class Sharding(_message.Message):
    __slots__ = ["iota_reshape_dims", "iota_transpose_perm", "last_tile_dims", "named_sharding", "replicate_on_last_tile_dim", "tile_assignment_devices", "tile_assignment_dimensions", "tuple_shardings", "type"]
    IOTA_RESHAPE_DIMS_FIELD_NUMBER: _ClassVar[int]
    IOTA_TRANSPOSE_PERM_FIELD_NUMBER: _ClassVar[int]
    LAST_TILE_DIMS_FIELD_NUMBER: _ClassVar[int]
    NAMED_SHARDING_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_ON_LAST_TILE_DIM_FIELD_NUMBER: _ClassVar[int]
    TILE_ASSIGNMENT_DEVICES_FIELD_NUMBER: _ClassVar[int]
    TILE_ASSIGNMENT_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    TUPLE_SHARDINGS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    iota_reshape_dims: _containers.RepeatedScalarFieldContainer[int]
    iota_transpose_perm: _containers.RepeatedScalarFieldContainer[int]
    last_tile_dims: _containers.RepeatedScalarFieldContainer[int]
    named_sharding: NamedSharding
    replicate_on_last_tile_dim: bool
    tile_assignment_devices: _containers.RepeatedScalarFieldContainer[int]
    tile_assignment_dimensions: _containers.RepeatedScalarFieldContainer[int]
    tuple_shardings: _containers.RepeatedScalarFieldContainer[bytes]
    type: int
    def __init__(self, type: _Optional[int] = ..., tile_assignment_dimensions: _Optional[_Iterable[int]] = ..., tile_assignment_devices: _Optional[_Iterable[int]] = ..., tuple_shardings: _Optional[_Iterable[bytes]] = ..., replicate_on_last_tile_dim: bool = ..., last_tile_dims: _Optional[_Iterable[int]] = ..., iota_reshape_dims: _Optional[_Iterable[int]] = ..., iota_transpose_perm: _Optional[_Iterable[int]] = ..., named_sharding: _Optional[_Union[NamedSharding, _Mapping]] = ...) -> None: ...

class SliceDimensions(_message.Message):
    __slots__ = ["start", "stride"]
    START_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    start: int
    stride: int
    def __init__(self, start: _Optional[int] = ..., stride: _Optional[int] = ...) -> None: ...

class SourceTarget(_message.Message):
    __slots__ = ["source", "target"]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: int
    target: int
    def __init__(self, source: _Optional[int] = ..., target: _Optional[int] = ...) -> None: ...

class StackFrame(_message.Message):
    __slots__ = ["file_location_id", "parent_frame_id"]
    FILE_LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_FRAME_ID_FIELD_NUMBER: _ClassVar[int]
    file_location_id: int
    parent_frame_id: int
    def __init__(self, file_location_id: _Optional[int] = ..., parent_frame_id: _Optional[int] = ...) -> None: ...

class StackFrameIndex(_message.Message):
    __slots__ = ["file_locations", "file_names", "stack_frames"]
    FILE_LOCATIONS_FIELD_NUMBER: _ClassVar[int]
    FILE_NAMES_FIELD_NUMBER: _ClassVar[int]
    STACK_FRAMES_FIELD_NUMBER: _ClassVar[int]
    file_locations: _containers.RepeatedScalarFieldContainer[bytes]
    file_names: _containers.RepeatedScalarFieldContainer[str]
    stack_frames: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, file_names: _Optional[_Iterable[str]] = ..., file_locations: _Optional[_Iterable[bytes]] = ..., stack_frames: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ["dimensions"]
    class Dimension(_message.Message):
        __slots__ = ["base_dilation", "padding_low", "size", "stride", "window_dilation"]
        BASE_DILATION_FIELD_NUMBER: _ClassVar[int]
        PADDING_LOW_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        STRIDE_FIELD_NUMBER: _ClassVar[int]
        WINDOW_DILATION_FIELD_NUMBER: _ClassVar[int]
        base_dilation: int
        padding_low: int
        size: int
        stride: int
        window_dilation: int
        def __init__(self, size: _Optional[int] = ..., stride: _Optional[int] = ..., padding_low: _Optional[int] = ..., window_dilation: _Optional[int] = ..., base_dilation: _Optional[int] = ...) -> None: ...
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    dimensions: _containers.RepeatedCompositeFieldContainer[Window.Dimension]
    def __init__(self, dimensions: _Optional[_Iterable[_Union[Window.Dimension, _Mapping]]] = ...) -> None: ...
