from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventMetadataEntry(_message.Message):
    __slots__ = ["key", "value"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: int
    value: XEventMetadata
    def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[XEventMetadata, _Mapping]] = ...) -> None: ...

class LineEvents(_message.Message):
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
        stats: _containers.RepeatedCompositeFieldContainer[LineEvents.Stat]
        def __init__(self, metadata_id: _Optional[int] = ..., offset_ps: _Optional[int] = ..., num_occurrences: _Optional[int] = ..., duration_ps: _Optional[int] = ..., stats: _Optional[_Iterable[_Union[LineEvents.Stat, _Mapping]]] = ...) -> None: ...
    class Stat(_message.Message):
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
        metadata_id: int
        ref_value: int
        str_value: bytes
        uint64_value: int
        def __init__(self, metadata_id: _Optional[int] = ..., double_value: _Optional[float] = ..., uint64_value: _Optional[int] = ..., int64_value: _Optional[int] = ..., str_value: _Optional[bytes] = ..., bytes_value: _Optional[bytes] = ..., ref_value: _Optional[int] = ..., compressed_str_value: _Optional[bytes] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[LineEvents.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[LineEvents.Event, _Mapping]]] = ...) -> None: ...

class LineFrame(_message.Message):
    __slots__ = ["display_id", "display_name", "duration_ps", "events", "id", "name", "timestamp_ns"]
    DISPLAY_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    DURATION_PS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    display_id: int
    display_name: str
    duration_ps: int
    events: _containers.RepeatedScalarFieldContainer[bytes]
    id: int
    name: str
    timestamp_ns: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., timestamp_ns: _Optional[int] = ..., events: _Optional[_Iterable[bytes]] = ..., duration_ps: _Optional[int] = ..., display_id: _Optional[int] = ..., display_name: _Optional[str] = ...) -> None: ...

class LineMerged(_message.Message):
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
        stats: LineMerged.Stat
        def __init__(self, metadata_id: _Optional[int] = ..., offset_ps: _Optional[int] = ..., duration_ps: _Optional[int] = ..., stats: _Optional[_Union[LineMerged.Stat, _Mapping]] = ..., num_occurrences: _Optional[int] = ...) -> None: ...
    class Stat(_message.Message):
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
        metadata_id: int
        ref_value: int
        str_value: bytes
        uint64_value: int
        def __init__(self, metadata_id: _Optional[int] = ..., double_value: _Optional[float] = ..., uint64_value: _Optional[int] = ..., int64_value: _Optional[int] = ..., str_value: _Optional[bytes] = ..., bytes_value: _Optional[bytes] = ..., ref_value: _Optional[int] = ..., compressed_str_value: _Optional[bytes] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: LineMerged.Event
    def __init__(self, events: _Optional[_Union[LineMerged.Event, _Mapping]] = ...) -> None: ...

class MemoryAccessBreakdown(_message.Message):
    __slots__ = ["accesses"]
    class Access(_message.Message):
        __slots__ = ["bytes", "memory_space", "operation"]
        BYTES_FIELD_NUMBER: _ClassVar[int]
        MEMORY_SPACE_FIELD_NUMBER: _ClassVar[int]
        OPERATION_FIELD_NUMBER: _ClassVar[int]
        bytes: int
        memory_space: int
        operation: int
        def __init__(self, operation: _Optional[int] = ..., memory_space: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...
    ACCESSES_FIELD_NUMBER: _ClassVar[int]
    accesses: _containers.RepeatedCompositeFieldContainer[MemoryAccessBreakdown.Access]
    def __init__(self, accesses: _Optional[_Iterable[_Union[MemoryAccessBreakdown.Access, _Mapping]]] = ...) -> None: ...

class OpMetadataEntry(_message.Message):
    __slots__ = ["key", "value"]
    class Value(_message.Message):
        __slots__ = ["display_name", "name", "stats"]
        DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        STATS_FIELD_NUMBER: _ClassVar[int]
        display_name: str
        name: str
        stats: _containers.RepeatedScalarFieldContainer[bytes]
        def __init__(self, name: _Optional[str] = ..., display_name: _Optional[str] = ..., stats: _Optional[_Iterable[bytes]] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: int
    value: OpMetadataEntry.Value
    def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[OpMetadataEntry.Value, _Mapping]] = ...) -> None: ...

class ProfileOptions(_message.Message):
    __slots__ = ["advanced_configuration", "device_tracer_level", "device_type", "duration_ms", "enable_hlo_proto", "host_tracer_level", "include_dataset_ops", "override_hostname", "python_tracer_level", "raise_error_on_start_failure", "repository_path", "session_id", "start_timestamp_ns", "trace_options", "version"]
    class DeviceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    class AdvancedConfigEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ProfileOptions.AdvancedConfigValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ProfileOptions.AdvancedConfigValue, _Mapping]] = ...) -> None: ...
    class AdvancedConfigValue(_message.Message):
        __slots__ = ["bool_value", "int32_value", "int64_value", "string_value"]
        BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
        INT32_VALUE_FIELD_NUMBER: _ClassVar[int]
        INT64_VALUE_FIELD_NUMBER: _ClassVar[int]
        STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
        bool_value: bool
        int32_value: int
        int64_value: int
        string_value: str
        def __init__(self, string_value: _Optional[str] = ..., bool_value: bool = ..., int64_value: _Optional[int] = ..., int32_value: _Optional[int] = ...) -> None: ...
    class TraceOptions(_message.Message):
        __slots__ = ["host_traceme_filter_mask"]
        HOST_TRACEME_FILTER_MASK_FIELD_NUMBER: _ClassVar[int]
        host_traceme_filter_mask: int
        def __init__(self, host_traceme_filter_mask: _Optional[int] = ...) -> None: ...
    ADVANCED_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    CPU: ProfileOptions.DeviceType
    DEVICE_TRACER_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    ENABLE_HLO_PROTO_FIELD_NUMBER: _ClassVar[int]
    GPU: ProfileOptions.DeviceType
    HOST_TRACER_LEVEL_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DATASET_OPS_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PLUGGABLE_DEVICE: ProfileOptions.DeviceType
    PYTHON_TRACER_LEVEL_FIELD_NUMBER: _ClassVar[int]
    RAISE_ERROR_ON_START_FAILURE_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_PATH_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    TPU: ProfileOptions.DeviceType
    TRACE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    UNSPECIFIED: ProfileOptions.DeviceType
    VERSION_FIELD_NUMBER: _ClassVar[int]
    advanced_configuration: _containers.RepeatedCompositeFieldContainer[ProfileOptions.AdvancedConfigEntry]
    device_tracer_level: int
    device_type: ProfileOptions.DeviceType
    duration_ms: int
    enable_hlo_proto: bool
    host_tracer_level: int
    include_dataset_ops: bool
    override_hostname: str
    python_tracer_level: int
    raise_error_on_start_failure: bool
    repository_path: str
    session_id: str
    start_timestamp_ns: int
    trace_options: ProfileOptions.TraceOptions
    version: int
    def __init__(self, include_dataset_ops: bool = ..., host_tracer_level: _Optional[int] = ..., device_tracer_level: _Optional[int] = ..., python_tracer_level: _Optional[int] = ..., version: _Optional[int] = ..., device_type: _Optional[_Union[ProfileOptions.DeviceType, str]] = ..., enable_hlo_proto: bool = ..., start_timestamp_ns: _Optional[int] = ..., duration_ms: _Optional[int] = ..., repository_path: _Optional[str] = ..., trace_options: _Optional[_Union[ProfileOptions.TraceOptions, _Mapping]] = ..., advanced_configuration: _Optional[_Iterable[_Union[ProfileOptions.AdvancedConfigEntry, _Mapping]]] = ..., raise_error_on_start_failure: bool = ..., session_id: _Optional[str] = ..., override_hostname: _Optional[str] = ...) -> None: ...

class StatMetadataEntry(_message.Message):
    __slots__ = ["key", "value"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: int
    value: XStatMetadata
    def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[XStatMetadata, _Mapping]] = ...) -> None: ...

class XEvent(_message.Message):
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
    stats: _containers.RepeatedCompositeFieldContainer[XStat]
    def __init__(self, metadata_id: _Optional[int] = ..., offset_ps: _Optional[int] = ..., num_occurrences: _Optional[int] = ..., duration_ps: _Optional[int] = ..., stats: _Optional[_Iterable[_Union[XStat, _Mapping]]] = ...) -> None: ...

class XEventMetadata(_message.Message):
    __slots__ = ["child_id", "display_name", "id", "metadata", "name", "stats"]
    CHILD_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    child_id: _containers.RepeatedScalarFieldContainer[int]
    display_name: str
    id: int
    metadata: bytes
    name: str
    stats: _containers.RepeatedCompositeFieldContainer[XStat]
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., metadata: _Optional[bytes] = ..., display_name: _Optional[str] = ..., stats: _Optional[_Iterable[_Union[XStat, _Mapping]]] = ..., child_id: _Optional[_Iterable[int]] = ...) -> None: ...

class XLine(_message.Message):
    __slots__ = ["display_id", "display_name", "duration_ps", "events", "id", "name", "timestamp_ns"]
    DISPLAY_ID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    DURATION_PS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    display_id: int
    display_name: str
    duration_ps: int
    events: _containers.RepeatedCompositeFieldContainer[XEvent]
    id: int
    name: str
    timestamp_ns: int
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., timestamp_ns: _Optional[int] = ..., events: _Optional[_Iterable[_Union[XEvent, _Mapping]]] = ..., duration_ps: _Optional[int] = ..., display_id: _Optional[int] = ..., display_name: _Optional[str] = ...) -> None: ...

class XPlane(_message.Message):
    __slots__ = ["event_metadata", "id", "lines", "name", "stat_metadata", "stats"]
    class EventMetadataEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: XEventMetadata
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[XEventMetadata, _Mapping]] = ...) -> None: ...
    class StatMetadataEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: XStatMetadata
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[XStatMetadata, _Mapping]] = ...) -> None: ...
    EVENT_METADATA_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    STAT_METADATA_FIELD_NUMBER: _ClassVar[int]
    event_metadata: _containers.MessageMap[int, XEventMetadata]
    id: int
    lines: _containers.RepeatedCompositeFieldContainer[XLine]
    name: str
    stat_metadata: _containers.MessageMap[int, XStatMetadata]
    stats: _containers.RepeatedCompositeFieldContainer[XStat]
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., lines: _Optional[_Iterable[_Union[XLine, _Mapping]]] = ..., event_metadata: _Optional[_Mapping[int, XEventMetadata]] = ..., stat_metadata: _Optional[_Mapping[int, XStatMetadata]] = ..., stats: _Optional[_Iterable[_Union[XStat, _Mapping]]] = ...) -> None: ...

class XSpace(_message.Message):
    __slots__ = ["errors", "hostnames", "planes", "warnings"]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    HOSTNAMES_FIELD_NUMBER: _ClassVar[int]
    PLANES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedScalarFieldContainer[str]
    hostnames: _containers.RepeatedScalarFieldContainer[str]
    planes: _containers.RepeatedCompositeFieldContainer[XPlane]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, planes: _Optional[_Iterable[_Union[XPlane, _Mapping]]] = ..., errors: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ..., hostnames: _Optional[_Iterable[str]] = ...) -> None: ...

class XStat(_message.Message):
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
    metadata_id: int
    ref_value: int
    str_value: str
    uint64_value: int
    def __init__(self, metadata_id: _Optional[int] = ..., double_value: _Optional[float] = ..., uint64_value: _Optional[int] = ..., int64_value: _Optional[int] = ..., str_value: _Optional[str] = ..., bytes_value: _Optional[bytes] = ..., ref_value: _Optional[int] = ..., compressed_str_value: _Optional[bytes] = ...) -> None: ...

class XStatMetadata(_message.Message):
    __slots__ = ["description", "id", "name"]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    description: str
    id: int
    name: str
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...
