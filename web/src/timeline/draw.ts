// Drawing the visible part of a timeline. What is narrower than a pixel is merged with its neighbours, and the next event is
// found by halving, so the work depends on the size of the canvas and not on the number of events.

import { colour } from "../theme";
import { after, type Flow, type Row, type Timeline, type Track } from "./model";

export const ROW = 17; // height of a row of events
export const HEAD = 22; // height of a track's title
export const COUNTER = 42;
export const RULER = 26;
const GAP = 6;
const FONT = '11px system-ui, "Segoe UI", sans-serif';

export interface ViewState {
    from: number; // ns
    to: number;
    scroll: number; // pixels
    selected: number; // event, -1 none
    hits: Uint8Array | null; // by name: found by the search
    flows: Flow[];
    measure: [number, number] | null;
}

export function trackHeight(track: Track): number {
    if (track.folded) return HEAD + GAP;
    return HEAD + GAP + (track.counter ? COUNTER : track.rows.length * ROW);
}

export function contentHeight(timeline: Timeline): number {
    return timeline.tracks.reduce((sum, track) => sum + trackHeight(track), 0);
}

/** Top of a track in the content, before scrolling. */
export function trackTop(timeline: Timeline, at: number): number {
    let top = 0;
    for (let t = 0; t < at; t++) top += trackHeight(timeline.tracks[t] as Track);
    return top;
}

const PALETTE = ["--e1", "--e2", "--e3", "--e4", "--e5", "--e6", "--e7", "--e8", "--e9", "--e10"];

/** The same name has the same colour everywhere; names, not categories, because that is what one looks for. */
function paletteOf(names: string[]): Uint8Array {
    return Uint8Array.from(names, (name) => {
        let hash = 2166136261;
        for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
        return (hash >>> 8) % PALETTE.length;
    });
}

export class Painter {
    private readonly tint: Uint8Array;

    constructor(private readonly timeline: Timeline) {
        this.tint = paletteOf(timeline.view.names);
    }

    draw(ctx: CanvasRenderingContext2D, width: number, height: number, state: ViewState): void {
        ctx.clearRect(0, 0, width, height);
        ctx.fillStyle = colour("--panel");
        ctx.fillRect(0, 0, width, height);
        const scale = width / (state.to - state.from);
        ctx.font = FONT;
        ctx.textBaseline = "middle";
        this.gridLines(ctx, width, height, state, scale);
        ctx.save();
        ctx.beginPath();
        ctx.rect(0, RULER, width, height - RULER);
        ctx.clip();
        let top = RULER - state.scroll;
        let group = "";
        for (const track of this.timeline.tracks) {
            const tall = trackHeight(track);
            if (top + tall > RULER && top < height) this.track(ctx, track, top, width, state, scale, track.group !== group);
            group = track.group;
            top += tall;
        }
        this.arrows(ctx, state, scale);
        ctx.restore();
        this.ruler(ctx, width, state, scale);
        if (state.measure) this.measure(ctx, height, state, scale);
    }

    private track(
        ctx: CanvasRenderingContext2D,
        track: Track,
        top: number,
        width: number,
        state: ViewState,
        scale: number,
        first: boolean,
    ): void {
        ctx.fillStyle = colour(first ? "--grid" : "--panel-2");
        ctx.fillRect(0, top, width, first ? 2 : 1);
        ctx.fillStyle = colour("--text");
        const mark = track.folded ? "▸" : "▾";
        ctx.fillText(`${mark} ${track.group === "Counters" ? "" : `${track.group} · `}${track.title}`, 6, top + HEAD / 2 + 1);
        if (track.folded) return;
        const base = top + HEAD;
        if (track.counter) {
            this.counter(ctx, track, base, width, state, scale);
            return;
        }
        track.rows.forEach((row, r) => this.row(ctx, row, base + r * ROW, width, state, scale));
    }

    /** One row: wide events with their names, runs of narrow ones as single marks. */
    private row(ctx: CanvasRenderingContext2D, row: Row, y: number, width: number, state: ViewState, scale: number): void {
        const { starts, ends, events } = row;
        const count = events.length;
        let i = after(ends, state.from);
        while (i < count) {
            const start = starts[i] ?? 0;
            if (start > state.to) break;
            const x = (start - state.from) * scale;
            const wide = ((ends[i] ?? 0) - start) * scale;
            const event = events[i] ?? 0;
            if (wide >= 1.5) {
                this.box(ctx, event, Math.max(x, -2), y, Math.min(x + wide, width + 2) - Math.max(x, -2), state);
                i++;
                continue;
            }
            // Everything that begins in this pixel is one mark; a hit of the search wins its colour.
            const pixel = Math.floor(x);
            let next = after(starts, state.from + (pixel + 1) / scale, i + 1);
            const last = ((ends[next - 1] ?? 0) - (starts[next - 1] ?? 0)) * scale;
            if (next > i + 1 && last >= 1.5) next--; // only the last can be wide
            const alone = next >= count || ((starts[next] ?? 0) - state.from) * scale > pixel + 2;
            this.mark(ctx, row, i, next, pixel, alone ? 2 : 1, y, state);
            i = next;
        }
    }

    private dimmed(event: number, state: ViewState): boolean {
        return state.hits !== null && !state.hits[this.timeline.name[event] ?? 0];
    }

    private fillOf(event: number): string {
        return colour(PALETTE[this.tint[this.timeline.name[event] ?? 0] ?? 0] ?? "--e1");
    }

    private mark(
        ctx: CanvasRenderingContext2D,
        row: Row,
        from: number,
        to: number,
        x: number,
        wide: number,
        y: number,
        state: ViewState,
    ): void {
        let event = row.events[from] ?? 0;
        let dim = this.dimmed(event, state);
        for (let i = from; i < to && dim && to - from < 64; i++) {
            event = row.events[i] ?? 0;
            dim = this.dimmed(event, state);
        }
        ctx.globalAlpha = dim ? 0.15 : 1;
        ctx.fillStyle = this.fillOf(event);
        ctx.fillRect(x, y, wide, ROW - 2);
        ctx.globalAlpha = 1;
    }

    private box(ctx: CanvasRenderingContext2D, event: number, x: number, y: number, wide: number, state: ViewState): void {
        const dim = this.dimmed(event, state);
        ctx.globalAlpha = dim ? 0.2 : 1;
        ctx.fillStyle = this.fillOf(event);
        ctx.fillRect(x, y, Math.max(wide - (wide > 4 ? 1 : 0), 1), ROW - 2);
        if (wide > 32) {
            ctx.fillStyle = colour("--event-text");
            ctx.save();
            ctx.beginPath();
            ctx.rect(x, y, wide - 3, ROW - 2);
            ctx.clip();
            ctx.fillText(
                this.timeline.nameOf(event).slice(0, Math.ceil(wide / 4)),
                Math.max(x, 0) + 4,
                y + (ROW - 2) / 2 + 0.5,
            );
            ctx.restore();
        }
        ctx.globalAlpha = 1;
        if (event === state.selected) {
            ctx.strokeStyle = colour("--text");
            ctx.lineWidth = 2;
            ctx.strokeRect(x + 1, y, Math.max(wide - 3, 1), ROW - 3);
        }
    }

    private counter(
        ctx: CanvasRenderingContext2D,
        track: Track,
        y: number,
        width: number,
        state: ViewState,
        scale: number,
    ): void {
        const counter = track.counter;
        if (!counter) return;
        const { ts, value, most } = counter;
        const bottom = y + COUNTER - 2;
        ctx.fillStyle = colour("--c1");
        ctx.globalAlpha = 0.55;
        let i = Math.max(after(ts, state.from) - 1, 0);
        while (i < ts.length && (ts[i] ?? 0) <= state.to) {
            const x = Math.max(((ts[i] ?? 0) - state.from) * scale, 0);
            // Of all points in one pixel the highest is drawn.
            const next = Math.max(after(ts, state.from + (x + 1) / scale, i), i + 1);
            let top = 0;
            for (let k = i; k < next && k < i + 256; k++) top = Math.max(top, value[k] ?? 0);
            const end = next < ts.length ? ((ts[next] ?? 0) - state.from) * scale : x + 1;
            const high = (COUNTER - 4) * (top / most);
            ctx.fillRect(x, bottom - high, Math.min(Math.max(end - x, 1), width - x), high);
            i = next;
        }
        ctx.globalAlpha = 1;
        ctx.fillStyle = colour("--muted");
        ctx.fillText(String(Number(most.toPrecision(4))), 6, y + 6);
    }

    private arrows(ctx: CanvasRenderingContext2D, state: ViewState, scale: number): void {
        ctx.strokeStyle = colour("--accent");
        ctx.lineWidth = 1.5;
        for (const flow of state.flows) {
            if (flow.fromTrack < 0 || flow.toTrack < 0) continue;
            const x1 = (flow.from - state.from) * scale;
            const x2 = (flow.to - state.from) * scale;
            const y1 = RULER - state.scroll + trackTop(this.timeline, flow.fromTrack) + HEAD + ROW / 2;
            const y2 = RULER - state.scroll + trackTop(this.timeline, flow.toTrack) + HEAD + ROW / 2;
            const bend = Math.min(Math.abs(x2 - x1) / 2 + 20, 120);
            ctx.beginPath();
            ctx.moveTo(x1, y1);
            ctx.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
            ctx.stroke();
            ctx.fillStyle = colour("--accent");
            ctx.beginPath();
            ctx.moveTo(x2, y2);
            ctx.lineTo(x2 - 6, y2 - 4);
            ctx.lineTo(x2 - 6, y2 + 4);
            ctx.fill();
        }
    }

    private gridLines(ctx: CanvasRenderingContext2D, width: number, height: number, state: ViewState, scale: number): void {
        const step = niceStep((state.to - state.from) / (width / 110));
        ctx.fillStyle = colour("--panel-2");
        for (let t = Math.ceil(state.from / step) * step; t < state.to; t += step)
            ctx.fillRect(Math.round((t - state.from) * scale), RULER, 1, height);
    }

    private ruler(ctx: CanvasRenderingContext2D, width: number, state: ViewState, scale: number): void {
        const step = niceStep((state.to - state.from) / (width / 110));
        ctx.fillStyle = colour("--panel-2");
        ctx.fillRect(0, 0, width, RULER);
        ctx.fillStyle = colour("--muted");
        for (let t = Math.ceil(state.from / step) * step; t < state.to; t += step) {
            const x = Math.round((t - state.from) * scale);
            ctx.fillRect(x, RULER - 6, 1, 6);
            ctx.fillText(rulerText(t, step), x + 3, RULER / 2);
        }
    }

    private measure(ctx: CanvasRenderingContext2D, height: number, state: ViewState, scale: number): void {
        const [a, b] = state.measure as [number, number];
        const x = (Math.min(a, b) - state.from) * scale;
        ctx.fillStyle = colour("--accent");
        ctx.globalAlpha = 0.15;
        ctx.fillRect(x, RULER, Math.abs(b - a) * scale, height);
        ctx.globalAlpha = 1;
    }
}

/** 1, 2 or 5 times a power of ten, at least `least` (ns, never below one). */
export function niceStep(least: number): number {
    const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
    const factor = [1, 2, 5, 10].find((f) => f * power >= least) ?? 10;
    return factor * power;
}

/** A moment in the unit of the step, with the digits that tell neighbours apart. */
export function rulerText(ns: number, step: number): string {
    const [scale, unit] = step >= 1e9 ? [1e9, "s"] : step >= 1e6 ? [1e6, "ms"] : step >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    return `${(ns / (scale as number)).toLocaleString("en-US", { maximumFractionDigits: 0 })} ${unit}`;
}
