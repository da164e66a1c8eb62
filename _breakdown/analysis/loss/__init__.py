"""Lost time: how much each line loses, to what, and what reduces it."""
