"""Fields of `spread`."""

from typing import Literal, TypedDict

from .common import Lead, OkAnswer
from .rows import DeviceName
from .units import Count, Fraction, Kind, Percent, Picoseconds


class SlowHost(TypedDict):
    """A host on which even the fastest device is slower than the fastest device of any other
    host."""

    host: str
    """Name of the host."""
    n_slowest: Count
    """Number of steps in which this host's fastest device was slower than the fastest device of any
    other host."""
    p_value: Fraction
    """Upper bound of the chance that, among equal hosts, some host is the slowest in `n_slowest` or
    more steps."""


class Verdict(TypedDict):
    """Verdict about the slowest device, and the reason why it is slow."""

    imbalance: Literal["balanced", "slight", "large"] | None
    """Size of the most time that perfect balance could save, which is `balanced` below 1 % of the
    step, `slight` below 5 %, otherwise `large`."""
    gain_ps: Picoseconds | None
    """Time that a step saves if the slowest device becomes as fast as the second slowest: the
    difference of their mean loads. Null without a verdict."""
    gain_pct_of_step: Percent | None
    """`gain_ps` as a percentage of the mean step; null without a verdict, or if steps have no
    length."""
    host_gain_ps: Picoseconds | None
    """Time that a step saves if the slow host becomes as fast as the other hosts, which is the
    largest mean load of the host's devices minus the largest mean load of all other devices. The
    slow host is `slow_host`, or the host of a straggler with scope `host`. Null without a slow
    host."""
    straggler: DeviceName | None
    """The device that is the slowest in more steps than chance explains; null if `gain_ps` (with
    scope `host`, `host_gain_ps`) is less than 0.5 % of the step. If several devices are equally
    slow, none of them is a straggler; see `slow_host`."""
    n_slowest: Count | None
    """Number of steps in which the straggler was the slowest device. Without a straggler, the
    number counts the steps of the device that is most often the slowest."""
    n_steps: Count
    """Number of steps."""
    p_value: Fraction | None
    """Upper bound of the chance that, among equal devices, some device is the slowest in
    `n_slowest` or more steps."""
    scope: Literal["host", "device"] | None
    """`host` if all devices of the straggler's host are above the median of the devices on other
    hosts, otherwise `device`; null with one host, or if the straggler is the only device of its
    host."""
    cause: Literal["own", "idle", "host"] | None
    """Part of the load that explains at least 80 % of the excess, which is `own`, `idle` or `host`;
    null if no part explains so much."""
    uniform_pct: Percent | None
    """Percentage of the excess that a uniform slowdown of all lines explains. The value is close to
    100 for a slow clock or a faulty chip, and low if only some lines are slow, such as unbalanced
    experts."""
    slow_host: SlowHost | None
    """A host that is slow although it has no straggler: in more steps than chance explains, the
    host's fastest device is slower than the fastest device of each other host, and `host_gain_ps`
    is at least 0.5 % of the step. Null unless all hosts have the same number of devices, two or
    more."""
    why_not: Literal["one_device", "no_common_step"] | None
    """Reason why there is no verdict."""


class SpreadStep(TypedDict):
    """A step in which every device has figures."""

    name: str | None
    """Name of the step."""
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
    """The most time that perfect balance would save."""
    imbalance_pct_of_step: Percent | None
    """`imbalance_ps` as a percentage of the mean step."""
    step_spread_pct: Percent | None
    """Longest minus shortest duration of the step among the devices, as a percentage of the median
    duration."""


class Means(TypedDict):
    step_duration_ps: Picoseconds | None
    """Mean duration of a step. `step_duration_ps` and the next five fields are null without a
    step."""
    own_ps: Picoseconds | None
    """Mean load without transfers to and from the host and without idle time."""
    comm_ps: Picoseconds | None
    """Mean time of communication."""
    host_ps: Picoseconds | None
    """Mean time of transfers to and from the host."""
    idle_ps: Picoseconds | None
    """Mean idle time."""
    load_ps: Picoseconds | None
    """Mean load: step duration minus communication."""


class Host(Means):
    """A host; figures are means over steps and devices."""

    host: str
    """Name of the host."""
    n_devices: Count
    """Number of devices of the host."""
    n_steps: Count
    """Number of steps, as in the cohort."""
    n_slowest: Count
    """Number of steps in which a device of the host was the slowest."""


class Device(DeviceName, Means):
    """A device, with means over steps."""

    n_steps: Count
    """Number of steps, as in the cohort."""
    n_slowest: Count
    """Number of steps in which the device was the slowest."""


class DevicesTail(TypedDict):
    """The devices that `--top` leaves out."""

    n_devices_omitted: Count
    """Number of omitted devices."""
    n_slowest: Count
    """Number of steps in which an omitted device was the slowest."""


class LineDelta(TypedDict):
    """A source line, compared between the slow device and the median device."""

    kind: Kind
    """Kind of the line's ops."""
    agg_key: str
    """Key of the group."""
    source_inner: str | None
    """Source line."""
    source_user: str | None
    """Innermost line of the user's own code in the stack; without a stack, the source line if it is
    in the user's own code. Null if no line is in the user's own code."""
    kernel: str | None
    """Name of the custom kernel among the line's ops; null without a kernel, and if the record is
    older than version 3.1."""
    scope: str | None
    """Scope, as in [by_scope](#by_scope), of the first path by name; null without a path."""
    median_ps: Picoseconds
    """Mean time on the median device."""
    slow_ps: Picoseconds
    """Mean time on the slow device."""
    delta_ps: Picoseconds
    """Difference: `slow_ps` minus `median_ps`."""
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
    """Sum over all lines of the slow device, divided by the sum over all lines of the median
    device."""
    rows: list[LineDelta]
    """Lines of all kinds but comm, the largest difference first, at most 20."""
    rest_ps: Picoseconds
    """The part of `excess_ps` that the lines in `rows` do not explain."""


class Cohort(TypedDict):
    """Devices that ran the same program."""

    program: str
    """Hash of the program, as in [record](#record)."""
    n_devices: Count
    """Number of devices."""
    n_hosts: Count
    """Number of hosts that have these devices."""
    n_steps: Count
    """Number of steps in which every device of the cohort has figures. The k-th steps of one name
    on all devices belong together; executions of programs are joined by index."""
    verdict: Verdict
    """Verdict about the slowest device, and the reason why it is slow."""
    steps: list[SpreadStep]
    """Steps by time."""
    hosts: list[Host]
    """Hosts by mean load, largest first."""
    devices: list[Device]
    """Devices by mean load, largest first, at most `--top`."""
    tail: DevicesTail
    """Number of omitted devices, and number of steps in which one of them was the slowest."""
    slowest_vs_median: SlowestVsMedian | None
    """Comparison of the straggler (otherwise the device with the largest load) with the median
    device; null with one device or no step."""


class Fields(TypedDict):
    n_hosts: Count
    """Number of hosts that were read."""
    n_hosts_unreadable: Count
    """Number of files that could not be read."""
    n_devices: Count
    """Number of devices that were read."""
    cohorts: list[Cohort]
    """Cohorts of devices that ran the same program, largest cohort first."""


class Returned(OkAnswer, Fields):
    pass


class Answer(Lead, Returned):
    pass
