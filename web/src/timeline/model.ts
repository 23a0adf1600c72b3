// The timeline's data, laid out once: each thread or stream is a track, each depth of nesting in it a row, and inside a row
// events never overlap. Starts and ends in a row are therefore both sorted, and any moment is found by halving.

import type { TimelineLane, TimelineView } from "../types";

const MOST_ARROWS = 32;

export interface Row {
    starts: Float64Array; // ns after the start of the trace
    ends: Float64Array;
    events: Uint32Array; // which event
}

export interface Track {
    lane: number;
    title: string;
    group: string;
    device: boolean;
    rows: Row[];
    counter: Counter | null; // a curve instead of rows
    folded: boolean;
    events: number;
}

export interface Counter {
    name: string;
    ts: Float64Array;
    value: Float64Array;
    most: number;
}

export interface Flow {
    fromTrack: number;
    from: number;
    toTrack: number;
    to: number;
}

export class Timeline {
    readonly count: number;
    readonly start: Float64Array;
    readonly dur: Float64Array;
    readonly seq: Uint32Array;
    readonly lane: Uint32Array;
    readonly name: Uint32Array;
    readonly category: Uint32Array;
    readonly tracks: Track[];
    readonly end: number; // of the last event
    private readonly trackOf: Int32Array; // by lane

    constructor(
        readonly view: TimelineView,
        counters: { name: string; ts: number; value: number }[],
    ) {
        this.count = view.ts.length;
        this.start = new Float64Array(this.count);
        this.dur = Float64Array.from(view.dur);
        this.seq = new Uint32Array(this.count);
        this.lane = Uint32Array.from(view.lane);
        this.name = Uint32Array.from(view.name);
        this.category = Uint32Array.from(view.cat);
        let time = 0;
        let seq = 0;
        let end = 0;
        for (let i = 0; i < this.count; i++) {
            time += view.ts[i] ?? 0;
            seq += view.seq[i] ?? 0;
            this.start[i] = time;
            this.seq[i] = seq;
            if (this.dur[i]) end = Math.max(end, time + (this.dur[i] ?? 0)); // instants alone do not widen the picture
        }
        this.end = end || 1;
        const order = laneOrder(view.lanes, this.deviceLanes());
        this.tracks = [...this.counterTracks(counters), ...this.layOut(order)];
        this.trackOf = new Int32Array(view.lanes.length).fill(-1);
        this.tracks.forEach((track, t) => {
            if (!track.counter) this.trackOf[track.lane] = t;
        });
    }

    trackOfEvent(event: number): number {
        return this.trackOf[this.lane[event] ?? 0] ?? -1;
    }

    endOf(event: number): number {
        return (this.start[event] ?? 0) + (this.dur[event] ?? 0);
    }

    nameOf(event: number): string {
        return this.view.names[this.name[event] ?? 0] ?? "";
    }

    categoryOf(event: number): string {
        return this.view.names[this.category[event] ?? 0] ?? "";
    }

    /** Lanes where kernels, copies or fills run. */
    private deviceLanes(): Uint8Array {
        const device = this.view.names.map((category) => /^(kernel|(gpu_|mlu_)?mem(cpy|set)|gpu_.*|mlu_.*)$/i.test(category));
        const lanes = new Uint8Array(this.view.lanes.length);
        for (let i = 0; i < this.count; i++) if (device[this.category[i] ?? 0]) lanes[this.lane[i] ?? 0] = 1;
        return lanes;
    }

    private layOut(order: { lane: number; device: boolean }[]): Track[] {
        const lists: number[][] = this.view.lanes.map(() => []);
        for (let i = 0; i < this.count; i++) lists[this.lane[i] ?? 0]?.push(i);
        const tracks: Track[] = [];
        for (const { lane, device } of order) {
            const events = lists[lane] ?? [];
            const about = this.view.lanes[lane] as TimelineLane;
            if (!events.some((event) => (this.dur[event] ?? 0) > 0)) continue;
            const depth = this.depths(events);
            tracks.push({
                lane,
                title: about.thread || (/^\d+$/.test(about.tid) ? `Thread ${about.tid}` : about.tid),
                group: about.process || `Process ${about.pid}`,
                device,
                rows: this.rowsOf(events, depth),
                counter: null,
                folded: false,
                events: events.length,
            });
        }
        return tracks;
    }

    /** How deep each event lies among those still running; events come in order of start, the longer first. */
    private depths(events: number[]): Uint16Array {
        const depth = new Uint16Array(events.length);
        const open: number[] = []; // ends
        events.forEach((event, i) => {
            const start = this.start[event] ?? 0;
            while (open.length && (open[open.length - 1] ?? 0) <= start) open.pop();
            depth[i] = Math.min(open.length, 255);
            open.push(this.endOf(event));
        });
        return depth;
    }

    private rowsOf(events: number[], depth: Uint16Array): Row[] {
        const sizes: number[] = [];
        for (const d of depth) sizes[d] = (sizes[d] ?? 0) + 1;
        const rows = sizes.map((size): Row => ({
            starts: new Float64Array(size),
            ends: new Float64Array(size),
            events: new Uint32Array(size),
        }));
        const used = new Uint32Array(rows.length);
        events.forEach((event, i) => {
            const d = depth[i] ?? 0;
            const row = rows[d] as Row;
            const at = used[d] ?? 0;
            row.starts[at] = this.start[event] ?? 0;
            row.ends[at] = this.endOf(event);
            row.events[at] = event;
            used[d] = at + 1;
        });
        return rows;
    }

    /** Utilisation curves of the trace view and the counters of the file. */
    private counterTracks(extra: { name: string; ts: number; value: number }[]): Track[] {
        const series = new Map<string, { ts: number[]; value: number[] }>();
        const add = (name: string, ts: number, value: number): void => {
            let one = series.get(name);
            if (!one) series.set(name, (one = { ts: [], value: [] }));
            one.ts.push(ts);
            one.value.push(value);
        };
        for (const event of extra) add(event.name, (event.ts - this.view.start) * 1000, event.value);
        for (const counter of this.view.counters) {
            const title = counter.key && counter.key !== counter.name ? `${counter.name} ${counter.key}` : counter.name;
            counter.ts.forEach((ts, i) => add(title, ts, counter.value[i] ?? 0));
        }
        return [...series].slice(0, 24).map(([name, { ts, value }]): Track => {
            const most = value.reduce((top, v) => Math.max(top, v), 0) || 1;
            const counter = { name, ts: Float64Array.from(ts), value: Float64Array.from(value), most };
            return {
                lane: -1,
                title: name,
                group: "Counters",
                device: true,
                rows: [],
                counter,
                folded: false,
                events: ts.length,
            };
        });
    }

    /** Arrows that begin or end inside an event; none for an event that holds so many that they would tell nothing. */
    flowsOf(event: number): Flow[] {
        const { from_lane, from, to_lane, to } = this.view.flows;
        const lane = this.lane[event];
        const begin = this.start[event] ?? 0;
        const end = this.endOf(event);
        const found: Flow[] = [];
        for (let i = 0; i < from.length && found.length <= MOST_ARROWS; i++) {
            const [a, b] = [from[i] ?? 0, to[i] ?? 0];
            const starts = from_lane[i] === lane && a >= begin && a <= end;
            const stops = to_lane[i] === lane && b >= begin && b <= end;
            if (starts || stops)
                found.push({
                    fromTrack: this.trackOf[from_lane[i] ?? 0] ?? -1,
                    from: a,
                    toTrack: this.trackOf[to_lane[i] ?? 0] ?? -1,
                    to: b,
                });
        }
        return found.length > MOST_ARROWS ? [] : found;
    }

    /** Events whose name holds the text, in order of start. */
    search(text: string): Uint32Array {
        const wanted = text.toLowerCase();
        const hit = this.view.names.map((name) => name.toLowerCase().includes(wanted));
        const found: number[] = [];
        for (let i = 0; i < this.count; i++) if (hit[this.name[i] ?? 0]) found.push(i);
        return Uint32Array.from(found);
    }
}

/** First index whose value is greater than `time` (all are sorted). */
export function after(sorted: Float64Array, time: number, from = 0): number {
    let low = from;
    let high = sorted.length;
    while (low < high) {
        const middle = (low + high) >>> 1;
        if ((sorted[middle] ?? 0) > time) high = middle;
        else low = middle + 1;
    }
    return low;
}

/** Host threads first, then devices; inside, as the file asks, then by number. */
function laneOrder(lanes: TimelineLane[], device: Uint8Array): { lane: number; device: boolean }[] {
    const key = (lane: number): (number | string)[] => {
        const about = lanes[lane] as TimelineLane;
        return [
            device[lane] ?? 0,
            about.process_sort ?? Number.MAX_SAFE_INTEGER,
            about.process,
            natural(about.pid),
            about.thread_sort ?? Number.MAX_SAFE_INTEGER,
            natural(about.tid),
        ];
    };
    const keys = lanes.map((_, lane) => key(lane));
    const order = lanes.map((_, lane) => lane);
    order.sort((a, b) => {
        const [x, y] = [keys[a] ?? [], keys[b] ?? []];
        for (let i = 0; i < x.length; i++) {
            const [p, q] = [x[i] ?? "", y[i] ?? ""];
            if (p !== q) return p < q ? -1 : 1;
        }
        return a - b;
    });
    return order.map((lane) => ({ lane, device: device[lane] === 1 }));
}

/** Numbers as text of fixed width, so that text order is their order. */
function natural(text: string): string {
    return /^\d+$/.test(text) ? text.padStart(20, "0") : text;
}
