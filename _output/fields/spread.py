"""Fields of `spread`."""

from typing import Literal, TypedDict

from .common import Lead, OkAnswer
from .rows import DeviceName
from .units import Count, Fraction, Kind, Percent, Picoseconds


class SlowHost(TypedDict):
    """A host whose fastest device is slower than the fastest device of every other host."""

    host: str
    """Name of the host."""
    n_slowest: Count
    """Number of steps in which this host's fastest device was slower than the fastest device of
    every other host."""
    p_value: Fraction
    """Upper bound of the probability that, if all hosts are equal, any of them is the slowest in
    `n_slowest` or more steps."""


class Verdict(TypedDict):
    """Verdict about the slowest device, and the reason why it is slow."""

    imbalance: Literal["balanced", "slight", "large"] | None
    """Rating of the time that perfect balance could save: `balanced` below 1 % of the step,
    `slight` below 5 %, otherwise `large`. Null if there is no verdict."""
    gain_ps: Picoseconds | None
    """Time that a step saves if the slowest device becomes as fast as the second slowest: the
    difference of their mean loads. Null if there is no verdict."""
    gain_pct_of_step: Percent | None
    """`gain_ps` as a percentage of the mean step duration; null if there is no verdict, or if the
    steps' duration is zero."""
    host_gain_ps: Picoseconds | None
    """Time that a step saves if the slow host becomes as fast as the other hosts: the largest mean
    load among the host's devices minus the largest mean load among all other devices. The slow host
    is `slow_host`, or the straggler's host if `scope` is `host`. Null if there is no slow host."""
    straggler: DeviceName | None
    """Device that is the slowest in more steps than chance explains; null if there is none. Also
    null if `gain_ps` (or `host_gain_ps`, if `scope` is `host`) is less than 0.5 % of the step. If
    several devices are equally slow, none of them is a straggler; see `slow_host`."""
    n_slowest: Count | None
    """Number of steps in which the straggler was the slowest device. If there is no straggler, this
    is the number for the device that is most often the slowest. Null if there is no verdict."""
    n_steps: Count
    """Number of steps."""
    p_value: Fraction | None
    """Upper bound of the probability that, if all devices are equal, any of them is the slowest in
    `n_slowest` or more steps. Null if there is no verdict."""
    scope: Literal["host", "device"] | None
    """`host` if all devices of the straggler's host are above the median of the devices on other
    hosts, otherwise `device`. Null if there is no straggler, if there is only one host, or if the
    straggler is the only device of its host."""
    cause: Literal["own", "idle", "host"] | None
    """Part of the load that explains at least 80 % of the excess: `own`, `idle` or `host`. Null if
    there is no straggler, or if no part explains that much."""
    uniform_pct: Percent | None
    """Percentage of the excess that a uniform slowdown of all lines explains. The value is close to
    100 for a slow clock or a faulty chip, and low if only some lines are slow, as with unbalanced
    experts."""
    slow_host: SlowHost | None
    """Host that is slow although no device is a straggler. In more steps than chance explains, the
    host's fastest device is slower than the fastest device of every other host, and `host_gain_ps`
    is at least 0.5 % of the step. Null if no host meets these conditions, if hosts differ in their
    number of devices, or if each host has only one device."""
    why_not: Literal["one_device", "no_common_step"] | None
    """Reason why there is no verdict; null if there is one."""


class SpreadStep(TypedDict):
    """A step for which every device has figures."""

    name: str | None
    """Name of the step; null if it has none."""
    slowest: DeviceName
    """The device with the largest load."""
    max_load_ps: Picoseconds
    """Load of the slowest device."""
    mean_load_ps: Picoseconds
    """Mean load of all devices."""
    gain_ps: Picoseconds | None
    """Time that the step saves if the slowest device becomes as fast as the second slowest: the
    difference of their loads. Null if the cohort has only one device."""
    imbalance_ps: Picoseconds
    """Time that perfect balance would save: `max_load_ps` minus `mean_load_ps`."""
    imbalance_pct_of_step: Percent | None
    """`imbalance_ps` as a percentage of the mean step duration."""
    step_spread_pct: Percent | None
    """Longest minus shortest duration of the step among the devices, as a percentage of the median
    duration."""


class Means(TypedDict):
    step_duration_ps: Picoseconds | None
    """Mean duration of a step. `step_duration_ps` and the following five fields are null if there
    is no step."""
    own_ps: Picoseconds | None
    """Mean load, excluding idle time and transfers to and from the host."""
    comm_ps: Picoseconds | None
    """Mean time of communication."""
    host_ps: Picoseconds | None
    """Mean time of transfers to and from the host."""
    idle_ps: Picoseconds | None
    """Mean idle time."""
    load_ps: Picoseconds | None
    """Mean load: step duration minus communication."""


class Host(Means):
    """A host. The times of a host are means over steps and devices."""

    host: str
    """Name of the host."""
    n_devices: Count
    """Number of devices on the host."""
    n_steps: Count
    """Number of steps, equal to `n_steps` of the cohort."""
    n_slowest: Count
    """Number of steps in which a device of the host was the slowest."""


class Device(DeviceName, Means):
    """A device. The times of a device are means over steps."""

    n_steps: Count
    """Number of steps, equal to `n_steps` of the cohort."""
    n_slowest: Count
    """Number of steps in which the device was the slowest."""


class DevicesTail(TypedDict):
    """Devices that `--top` omits."""

    n_devices_omitted: Count
    """Number of omitted devices."""
    n_slowest: Count
    """Number of steps in which an omitted device was the slowest."""


class LineDelta(TypedDict):
    """A source line, and its times on the slow device and on the median device."""

    kind: Kind
    """Kind of the line's ops."""
    agg_key: str
    """Key of the group."""
    source_inner: str | None
    """Source line; null if unknown."""
    source_user: str | None
    """Innermost line of the user's own code in the stack; without a stack, the source line if this
    line is in the user's own code. Null if there is no such line."""
    kernel: str | None
    """Name of the custom kernel among the line's ops; null if there is none, and if the record is
    older than version 3.1."""
    scope: str | None
    """Scope of the line's alphabetically first path, as in [by_scope](#by_scope); null if there is
    no path."""
    median_ps: Picoseconds
    """Mean time on the median device."""
    slow_ps: Picoseconds
    """Mean time on the slow device."""
    delta_ps: Picoseconds
    """`slow_ps` minus `median_ps`."""
    delta_pct: Percent | None
    """`delta_ps` as a percentage of `median_ps`."""


class SlowestVsMedian(TypedDict):
    """Comparison of the slow device with the median device, line by line."""

    slow: DeviceName
    """The slow device."""
    median: DeviceName
    """The median device."""
    excess_ps: Picoseconds
    """Load of the slow device minus load of the median device."""
    factor: Fraction | None
    """Total time of all lines on the slow device, divided by the total time of all lines on the
    median device."""
    rows: list[LineDelta]
    """Up to 20 lines of all kinds except comm, largest difference first."""
    rest_ps: Picoseconds
    """The part of `excess_ps` that the lines in `rows` do not explain."""


class Cohort(TypedDict):
    """Devices that ran the same program."""

    program: str
    """Hash of the program, as in [record](#record)."""
    n_devices: Count
    """Number of devices."""
    n_hosts: Count
    """Number of hosts that these devices belong to."""
    n_steps: Count
    """Number of steps for which every device of the cohort has data. The k-th steps with the same
    name on all devices are matched with each other; executions of programs are matched by index."""
    verdict: Verdict
    """Verdict about the slowest device, and the reason why it is slow."""
    steps: list[SpreadStep]
    """Steps in order of time."""
    hosts: list[Host]
    """Hosts by mean load, largest first."""
    devices: list[Device]
    """Devices by mean load, largest first, up to `--top` rows."""
    tail: DevicesTail
    """Number of omitted devices, and number of steps in which one of them was the slowest."""
    slowest_vs_median: SlowestVsMedian | None
    """Comparison of the straggler (if there is none, of the device with the largest load) with the
    median device. Null if there is only one device or no step."""


class Fields(TypedDict):
    n_hosts: Count
    """Number of hosts that were read."""
    n_hosts_unreadable: Count
    """Number of files that could not be read."""
    n_devices: Count
    """Number of devices that were read."""
    cohorts: list[Cohort]
    """Groups of devices that ran the same program, largest group first."""


class TraceOfDevice(TypedDict):
    """Arguments with which other modes read the trace of a device."""

    profile: str
    """PROFILE: a file, or a directory of a run."""
    host: str
    """Value for `--host`."""


class Returned(OkAnswer, Fields):
    trace_of_straggler: TraceOfDevice | None
    """Where other modes find the straggler of the first group. Null if there is none, and if it was
    read from a record that is not next to its trace, or from memory."""


class Answer(Lead, Returned):
    pass
