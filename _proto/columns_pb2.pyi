from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LineColumns(_message.Message):
    __slots__ = ["events"]
    class Column(_message.Message):
        __slots__ = ["metadata_id", "uint64_value"]
        METADATA_ID_FIELD_NUMBER: _ClassVar[int]
        UINT64_VALUE_FIELD_NUMBER: _ClassVar[int]
        metadata_id: _containers.RepeatedScalarFieldContainer[int]
        uint64_value: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, metadata_id: _Optional[_Iterable[int]] = ..., uint64_value: _Optional[_Iterable[int]] = ...) -> None: ...
    class Event(_message.Message):
        __slots__ = ["duration_ps", "metadata_id", "offset_ps", "stats"]
        DURATION_PS_FIELD_NUMBER: _ClassVar[int]
        METADATA_ID_FIELD_NUMBER: _ClassVar[int]
        OFFSET_PS_FIELD_NUMBER: _ClassVar[int]
        STATS_FIELD_NUMBER: _ClassVar[int]
        duration_ps: _containers.RepeatedScalarFieldContainer[int]
        metadata_id: _containers.RepeatedScalarFieldContainer[int]
        offset_ps: _containers.RepeatedScalarFieldContainer[int]
        stats: LineColumns.Column
        def __init__(self, metadata_id: _Optional[_Iterable[int]] = ..., offset_ps: _Optional[_Iterable[int]] = ..., duration_ps: _Optional[_Iterable[int]] = ..., stats: _Optional[_Union[LineColumns.Column, _Mapping]] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: LineColumns.Event
    def __init__(self, events: _Optional[_Union[LineColumns.Event, _Mapping]] = ...) -> None: ...

class LineShapes(_message.Message):
    __slots__ = ["events"]
    class Event(_message.Message):
        __slots__ = ["duration_ps", "metadata_id", "num_occurrences", "offset_ps", "stats"]
        DURATION_PS_FIELD_NUMBER: _ClassVar[int]
        METADATA_ID_FIELD_NUMBER: _ClassVar[int]
        NUM_OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
        OFFSET_PS_FIELD_NUMBER: _ClassVar[int]
        STATS_FIELD_NUMBER: _ClassVar[int]
        duration_ps: int
        metadata_id: int
        num_occurrences: int
        offset_ps: int
        stats: bytes
        def __init__(self, metadata_id: _Optional[int] = ..., offset_ps: _Optional[int] = ..., duration_ps: _Optional[int] = ..., stats: _Optional[bytes] = ..., num_occurrences: _Optional[int] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[LineShapes.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[LineShapes.Event, _Mapping]]] = ...) -> None: ...

class LineStarts(_message.Message):
    __slots__ = ["events"]
    class Column(_message.Message):
        __slots__ = ["duration_ps", "metadata_id", "num_occurrences", "offset_ps", "stats"]
        DURATION_PS_FIELD_NUMBER: _ClassVar[int]
        METADATA_ID_FIELD_NUMBER: _ClassVar[int]
        NUM_OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
        OFFSET_PS_FIELD_NUMBER: _ClassVar[int]
        STATS_FIELD_NUMBER: _ClassVar[int]
        duration_ps: int
        metadata_id: int
        num_occurrences: int
        offset_ps: _containers.RepeatedScalarFieldContainer[int]
        stats: bytes
        def __init__(self, metadata_id: _Optional[int] = ..., offset_ps: _Optional[_Iterable[int]] = ..., duration_ps: _Optional[int] = ..., stats: _Optional[bytes] = ..., num_occurrences: _Optional[int] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: LineStarts.Column
    def __init__(self, events: _Optional[_Union[LineStarts.Column, _Mapping]] = ...) -> None: ...

class LineStatIds(_message.Message):
    __slots__ = ["events"]
    class Column(_message.Message):
        __slots__ = ["bytes_value", "compressed_str_value", "double_value", "int64_value", "metadata_id", "ref_value", "str_value", "uint64_value"]
        BYTES_VALUE_FIELD_NUMBER: _ClassVar[int]
        COMPRESSED_STR_VALUE_FIELD_NUMBER: _ClassVar[int]
        DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
        INT64_VALUE_FIELD_NUMBER: _ClassVar[int]
        METADATA_ID_FIELD_NUMBER: _ClassVar[int]
        REF_VALUE_FIELD_NUMBER: _ClassVar[int]
        STR_VALUE_FIELD_NUMBER: _ClassVar[int]
        UINT64_VALUE_FIELD_NUMBER: _ClassVar[int]
        bytes_value: bytes
        compressed_str_value: bytes
        double_value: float
        int64_value: int
        metadata_id: _containers.RepeatedScalarFieldContainer[int]
        ref_value: int
        str_value: bytes
        uint64_value: int
        def __init__(self, metadata_id: _Optional[_Iterable[int]] = ..., double_value: _Optional[float] = ..., uint64_value: _Optional[int] = ..., int64_value: _Optional[int] = ..., str_value: _Optional[bytes] = ..., bytes_value: _Optional[bytes] = ..., ref_value: _Optional[int] = ..., compressed_str_value: _Optional[bytes] = ...) -> None: ...
    class Event(_message.Message):
        __slots__ = ["duration_ps", "metadata_id", "num_occurrences", "offset_ps", "stats"]
        DURATION_PS_FIELD_NUMBER: _ClassVar[int]
        METADATA_ID_FIELD_NUMBER: _ClassVar[int]
        NUM_OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
        OFFSET_PS_FIELD_NUMBER: _ClassVar[int]
        STATS_FIELD_NUMBER: _ClassVar[int]
        duration_ps: int
        metadata_id: int
        num_occurrences: int
        offset_ps: int
        stats: LineStatIds.Column
        def __init__(self, metadata_id: _Optional[int] = ..., offset_ps: _Optional[int] = ..., duration_ps: _Optional[int] = ..., stats: _Optional[_Union[LineStatIds.Column, _Mapping]] = ..., num_occurrences: _Optional[int] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: LineStatIds.Event
    def __init__(self, events: _Optional[_Union[LineStatIds.Event, _Mapping]] = ...) -> None: ...

class MetadataKeys(_message.Message):
    __slots__ = ["event_metadata"]
    class Entry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: _containers.RepeatedScalarFieldContainer[int]
        value: bytes
        def __init__(self, key: _Optional[_Iterable[int]] = ..., value: _Optional[bytes] = ...) -> None: ...
    EVENT_METADATA_FIELD_NUMBER: _ClassVar[int]
    event_metadata: MetadataKeys.Entry
    def __init__(self, event_metadata: _Optional[_Union[MetadataKeys.Entry, _Mapping]] = ...) -> None: ...
