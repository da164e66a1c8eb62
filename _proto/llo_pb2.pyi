from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Allocation(_message.Message):
    __slots__ = ["bytes", "is_spill"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_SPILL_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    is_spill: bool
    def __init__(self, bytes: _Optional[int] = ..., is_spill: bool = ...) -> None: ...

class Bounds(_message.Message):
    __slots__ = ["limit", "start", "step"]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    limit: int
    start: int
    step: int
    def __init__(self, start: _Optional[int] = ..., limit: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class Branch(_message.Message):
    __slots__ = ["body", "check", "check_branch", "fallthrough"]
    BODY_FIELD_NUMBER: _ClassVar[int]
    CHECK_BRANCH_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    FALLTHROUGH_FIELD_NUMBER: _ClassVar[int]
    body: Region
    check: Region
    check_branch: Region
    fallthrough: Region
    def __init__(self, check: _Optional[_Union[Region, _Mapping]] = ..., check_branch: _Optional[_Union[Region, _Mapping]] = ..., body: _Optional[_Union[Region, _Mapping]] = ..., fallthrough: _Optional[_Union[Region, _Mapping]] = ...) -> None: ...

class Constant(_message.Message):
    __slots__ = ["allocation", "value"]
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    allocation: Allocation
    value: int
    def __init__(self, value: _Optional[int] = ..., allocation: _Optional[_Union[Allocation, _Mapping]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ["column", "end_column", "end_line", "file", "line"]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    END_COLUMN_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    column: int
    end_column: int
    end_line: int
    file: int
    line: int
    def __init__(self, file: _Optional[int] = ..., line: _Optional[int] = ..., end_line: _Optional[int] = ..., column: _Optional[int] = ..., end_column: _Optional[int] = ...) -> None: ...

class Instruction(_message.Message):
    __slots__ = ["id", "note", "opcode", "operands", "register_file", "twice_bundle"]
    ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    OPCODE_FIELD_NUMBER: _ClassVar[int]
    OPERANDS_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FILE_FIELD_NUMBER: _ClassVar[int]
    TWICE_BUNDLE_FIELD_NUMBER: _ClassVar[int]
    id: int
    note: int
    opcode: int
    operands: _containers.RepeatedCompositeFieldContainer[Operand]
    register_file: int
    twice_bundle: int
    def __init__(self, id: _Optional[int] = ..., opcode: _Optional[int] = ..., operands: _Optional[_Iterable[_Union[Operand, _Mapping]]] = ..., twice_bundle: _Optional[int] = ..., register_file: _Optional[int] = ..., note: _Optional[int] = ...) -> None: ...

class Item(_message.Message):
    __slots__ = ["branch", "instruction", "loop", "region"]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    branch: Branch
    instruction: Instruction
    loop: Loop
    region: Region
    def __init__(self, instruction: _Optional[_Union[Instruction, _Mapping]] = ..., loop: _Optional[_Union[Loop, _Mapping]] = ..., branch: _Optional[_Union[Branch, _Mapping]] = ..., region: _Optional[_Union[Region, _Mapping]] = ...) -> None: ...

class Loop(_message.Message):
    __slots__ = ["body", "bounds", "exit", "footer", "footer_branch", "header", "header_branch", "pre_header"]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    FOOTER_BRANCH_FIELD_NUMBER: _ClassVar[int]
    FOOTER_FIELD_NUMBER: _ClassVar[int]
    HEADER_BRANCH_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PRE_HEADER_FIELD_NUMBER: _ClassVar[int]
    body: Region
    bounds: Bounds
    exit: Region
    footer: Region
    footer_branch: Region
    header: Region
    header_branch: Region
    pre_header: Region
    def __init__(self, pre_header: _Optional[_Union[Region, _Mapping]] = ..., header: _Optional[_Union[Region, _Mapping]] = ..., header_branch: _Optional[_Union[Region, _Mapping]] = ..., body: _Optional[_Union[Region, _Mapping]] = ..., footer: _Optional[_Union[Region, _Mapping]] = ..., footer_branch: _Optional[_Union[Region, _Mapping]] = ..., exit: _Optional[_Union[Region, _Mapping]] = ..., bounds: _Optional[_Union[Bounds, _Mapping]] = ...) -> None: ...

class Module(_message.Message):
    __slots__ = ["constants", "notes", "root", "sources", "units"]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    constants: _containers.RepeatedCompositeFieldContainer[Constant]
    notes: _containers.RepeatedScalarFieldContainer[bytes]
    root: Region
    sources: Sources
    units: Units
    def __init__(self, root: _Optional[_Union[Region, _Mapping]] = ..., units: _Optional[_Union[Units, _Mapping]] = ..., constants: _Optional[_Iterable[_Union[Constant, _Mapping]]] = ..., notes: _Optional[_Iterable[bytes]] = ..., sources: _Optional[_Union[Sources, _Mapping]] = ...) -> None: ...

class Operand(_message.Message):
    __slots__ = ["constant", "instruction"]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    constant: int
    instruction: int
    def __init__(self, constant: _Optional[int] = ..., instruction: _Optional[int] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ["end", "id", "items", "start"]
    END_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    end: int
    id: int
    items: _containers.RepeatedCompositeFieldContainer[Item]
    start: int
    def __init__(self, items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., id: _Optional[int] = ...) -> None: ...

class SourceEntry(_message.Message):
    __slots__ = ["frames", "instructions", "primitive", "scopes"]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    PRIMITIVE_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    instructions: _containers.RepeatedScalarFieldContainer[int]
    primitive: int
    scopes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., primitive: _Optional[int] = ..., scopes: _Optional[_Iterable[int]] = ..., instructions: _Optional[_Iterable[int]] = ...) -> None: ...

class Sources(_message.Message):
    __slots__ = ["entries", "texts"]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[SourceEntry]
    texts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, entries: _Optional[_Iterable[_Union[SourceEntry, _Mapping]]] = ..., texts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Unit(_message.Message):
    __slots__ = ["capacity", "used"]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    capacity: int
    used: bytes
    def __init__(self, used: _Optional[bytes] = ..., capacity: _Optional[int] = ...) -> None: ...

class Units(_message.Message):
    __slots__ = ["eup", "load", "mxu", "store", "valu", "xlu"]
    EUP_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    MXU_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    VALU_FIELD_NUMBER: _ClassVar[int]
    XLU_FIELD_NUMBER: _ClassVar[int]
    eup: Unit
    load: Unit
    mxu: Unit
    store: Unit
    valu: Unit
    xlu: Unit
    def __init__(self, mxu: _Optional[_Union[Unit, _Mapping]] = ..., xlu: _Optional[_Union[Unit, _Mapping]] = ..., valu: _Optional[_Union[Unit, _Mapping]] = ..., eup: _Optional[_Union[Unit, _Mapping]] = ..., load: _Optional[_Union[Unit, _Mapping]] = ..., store: _Optional[_Union[Unit, _Mapping]] = ...) -> None: ...
