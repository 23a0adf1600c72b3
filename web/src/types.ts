// The JSON that the analyser answers, as far as the page looks at it. Names are those of the views.

export type Cell = string | number | boolean | null;

export interface ViewColumn {
    name: string;
    type: string;
    tooltip?: string;
    role?: string;
    key?: string;
}

export interface Grid {
    columns: ViewColumn[];
    rows: Cell[][];
}

/** A table that says by which column it is sorted. */
export interface SortedGrid extends Grid {
    metadata: { title: string; sort: string };
}

export interface Overview {
    steps: Grid;
    performance: PerformanceRow[];
    recommendations: string;
    environments: { title: string; value: string }[];
    gpu_metrics?: Metrics;
    mlu_metrics?: Metrics;
}

export interface PerformanceRow {
    name: string;
    description: string;
    value: number;
    extra: number;
    children?: PerformanceRow[];
}

export interface Metrics {
    title: string;
    data: { title: string; value: string }[];
    tooltip: string;
}

export interface Pie {
    title: string;
    columns: ViewColumn[];
    rows: [string, number][];
}

export type OperationPies = Record<"device_total_time" | "device_self_time" | "host_total_time" | "host_self_time", Pie | null>;

export interface OperationTable {
    metadata: { sort: string; tooltips: Record<string, string> };
    data: Record<string, Cell>[];
}

export interface KernelTable {
    metadata: { sort: string };
    data: Grid;
}

export interface KernelPie {
    total: { columns: ViewColumn[]; rows: [string, number][] };
}

export interface DeviceTable {
    metadata: { title: string; default_device: string; sort?: string };
    columns: ViewColumn[];
    rows: Record<string, Cell[][]>;
}

export interface MemoryCurve {
    metadata: {
        default_device: string;
        devices: string[];
        peaks: Record<string, string>;
        first_ts: number;
        time_metric: string;
        memory_metric: string;
        time_factor: number;
    };
    columns: ViewColumn[];
    rows: Record<string, [number, number, number][]>;
}

export interface ModuleRow {
    name: string;
    id: number;
    occurences: number;
    operators: number;
    host_duration: number;
    self_host_duration: number;
    device_duration: number;
    self_device_duration: number;
    avg_duration: number;
    children: ModuleRow[];
}

export interface ModuleView {
    columns: ViewColumn[];
    data: ModuleRow[];
}

export interface StepBars {
    metadata: { title: string; legends: string[]; units: string };
    data: Record<string, Record<string, number[]>>;
}

export interface CommOps {
    metadata: { title: string };
    data: Record<string, Grid>;
}

export interface DeviceInfo {
    metadata: { title: string };
    data: Record<string, Record<string, Record<string, Record<string, Cell>>>>;
}

export interface DiffAgg {
    name: string;
    calls: number;
    host_duration: number;
    device_duration: number;
    self_host_duration: number;
    self_device_duration: number;
}

export interface DiffSide {
    name: string;
    duration: number;
    device_duration: number;
    total_duration: number;
    aggs: DiffAgg[];
}

export interface DiffNode {
    left: DiffSide;
    right: DiffSide;
    children: DiffNode[];
}

export interface CounterEvent {
    name: string;
    pid: number | string;
    ts: number;
    args: Record<string, number>;
}

/** The timeline as columns: event i starts `ts[0] + ... + ts[i]` ns after `start`, in order of start, the longer first. */
export interface TimelineView {
    start: number; // microseconds, the trace's own clock
    names: string[]; // of events and of categories
    lanes: TimelineLane[];
    ts: number[];
    dur: number[];
    lane: number[];
    name: number[];
    cat: number[];
    seq: number[]; // steps of the event's number in the file, by which arguments are asked for
    flows: { from_lane: number[]; from: number[]; to_lane: number[]; to: number[] }; // times in ns after start
    counters: { lane: number; name: string; key: string; ts: number[]; value: number[] }[];
    args_chunk: number;
    left_out: number;
}

export interface TimelineLane {
    pid: string;
    tid: string;
    process: string;
    thread: string;
    process_sort: number | null;
    thread_sort: number | null;
}

export interface TraceInfo {
    dialect: string;
    text_bytes: number;
    events_seen: number;
    events_kept: number;
    events_broken: number;
    nodes_dropped: number;
    orphan_kernels: number;
    events_unknown: number;
    events_backward: number;
}
