// The timeline tab: one canvas, moved with mouse and keys, a search, and a panel that says what was clicked.

import type { Data } from "../data";
import { h, note, replace } from "../dom";
import { duration, number } from "../format";
import { onTheme } from "../theme";
import type { CounterEvent, TimelineView } from "../types";
import { contentHeight, HEAD, Painter, ROW, RULER, trackHeight, trackTop, type ViewState } from "./draw";
import { after, Timeline, type Track } from "./model";
import { eventPanel, rangePanel } from "./panel";

const HELP =
    "w/s zoom, a/d or arrows move, / searches, Enter and Shift+Enter go through what was found, f zooms to the selection, " +
    "0 shows all. Ctrl+wheel zooms, dragging moves, Shift+drag measures.";

export async function timelineTab(data: Data, trace: number): Promise<Node[]> {
    const view = await data.view<TimelineView>("timeline", trace);
    const counters = (await data.maybe<CounterEvent[]>("trace_counters", trace)) ?? [];
    if (view.ts.length === 0) return [note("The trace holds no events with a duration.")];
    const extra = counters.map((event) => ({ name: event.name, ts: event.ts, value: Object.values(event.args)[0] ?? 0 }));
    return [new TimelineWidget(data, trace, new Timeline(view, extra)).element];
}

class TimelineWidget {
    readonly element: HTMLElement;
    private readonly canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": `Timeline. ${HELP}` });
    private readonly box = h("div", { class: "timeline-box" }, this.canvas);
    private readonly panel = h("aside", { class: "timeline-panel", "aria-live": "polite" }, note(HELP));
    private readonly search: HTMLInputElement;
    private readonly found = h("span", { class: "count", "aria-live": "polite" });
    private readonly shown = h("span", { class: "count" });
    private readonly painter: Painter;
    private readonly state: ViewState;
    private hits: Uint32Array = new Uint32Array(0);
    private hitAt = -1;
    private sought = "";
    private waiting = false;
    private width = 0;
    private height = 0;

    constructor(
        private readonly data: Data,
        private readonly trace: number,
        private readonly timeline: Timeline,
    ) {
        this.painter = new Painter(timeline);
        this.state = { from: 0, to: timeline.end * 1.01, scroll: 0, selected: -1, hits: null, flows: [], measure: null };
        this.search = h("input", {
            type: "search",
            placeholder: "Search events ( / )",
            "aria-label": "Search events by name",
            oninput: () => this.find(),
            onsearch: () => this.find(),
            onkeydown: (event: KeyboardEvent) => this.searchKey(event),
        });
        const button = (text: string, title: string, act: () => void): HTMLElement =>
            h("button", { type: "button", class: "small", title, onclick: act }, text);
        const tools = h(
            "div",
            { class: "bar no-print" },
            this.search,
            button("‹", "Previous match (Shift+Enter)", () => this.step(-1)),
            button("›", "Next match (Enter)", () => this.step(1)),
            this.found,
            h("span", { class: "spring" }),
            this.shown,
            button("−", "Zoom out (s)", () => this.zoom(1.5)),
            button("+", "Zoom in (w)", () => this.zoom(1 / 1.5)),
            button("All", "Show everything (0)", () => this.show(0, this.timeline.end * 1.01)),
        );
        this.element = h("div", { class: "timeline" }, tools, h("div", { class: "timeline-main" }, this.box, this.panel));
        this.listen();
    }

    private listen(): void {
        new ResizeObserver(() => this.resize()).observe(this.box);
        onTheme(this.box, () => this.redraw());
        this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
        this.canvas.addEventListener("pointerdown", (event) => this.press(event));
        this.canvas.addEventListener("dblclick", (event) => {
            const hit = this.eventAt(event.offsetX, event.offsetY);
            if (hit >= 0) this.zoomTo(hit);
        });
        this.canvas.addEventListener("mousemove", (event) => this.hover(event));
        this.element.addEventListener("keydown", (event) => this.key(event));
    }

    /** For tests and for other tabs: what is on the screen, in nanoseconds. */
    private report(): void {
        this.element.dataset["from"] = String(Math.round(this.state.from));
        this.element.dataset["to"] = String(Math.round(this.state.to));
        const long = duration((this.state.to - this.state.from) / 1000);
        this.shown.textContent = `${number(this.timeline.count)} events · ${long} shown`;
    }

    private resize(): void {
        this.width = this.box.clientWidth;
        this.height = this.box.clientHeight;
        if (!this.width || !this.height) return;
        this.canvas.width = this.width * devicePixelRatio;
        this.canvas.height = this.height * devicePixelRatio;
        this.paint();
    }

    private redraw(): void {
        if (this.waiting) return;
        this.waiting = true;
        requestAnimationFrame(() => {
            this.waiting = false;
            this.paint();
        });
    }

    private paint(): void {
        const ctx = this.canvas.getContext("2d");
        if (!ctx || !this.width) return;
        const begun = performance.now();
        ctx.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
        this.painter.draw(ctx, this.width, this.height, this.state);
        this.element.dataset["paint"] = (performance.now() - begun).toFixed(2);
        this.report();
    }

    private show(from: number, to: number): void {
        const whole = this.timeline.end;
        const span = Math.min(Math.max(to - from, 20), whole * 1.5);
        const middle = (from + to) / 2;
        const first = Math.min(Math.max(middle - span / 2, -span * 0.5), whole - span * 0.5);
        this.state.from = first;
        this.state.to = first + span;
        this.redraw();
    }

    private zoom(factor: number, x = this.width / 2): void {
        const { from, to } = this.state;
        const pivot = from + ((to - from) * x) / (this.width || 1);
        this.show(pivot - (pivot - from) * factor, pivot + (to - pivot) * factor);
    }

    private pan(pixels: number): void {
        const by = (pixels * (this.state.to - this.state.from)) / (this.width || 1);
        this.show(this.state.from + by, this.state.to + by);
    }

    private scrollBy(pixels: number): void {
        const most = Math.max(contentHeight(this.timeline) + RULER - this.height, 0);
        this.state.scroll = Math.min(Math.max(this.state.scroll + pixels, 0), most);
        this.redraw();
    }

    private wheel(event: WheelEvent): void {
        event.preventDefault();
        const pixels = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
        if (event.ctrlKey || event.metaKey || event.altKey)
            this.zoom(Math.exp(Math.min(Math.max(pixels, -240), 240) / 240), event.offsetX);
        else if (event.shiftKey) this.pan(pixels);
        else {
            if (event.deltaX) this.pan(event.deltaX);
            if (pixels) this.scrollBy(pixels);
        }
    }

    private press(event: PointerEvent): void {
        if (event.button !== 0) return;
        this.canvas.focus({ preventScroll: true });
        this.canvas.setPointerCapture(event.pointerId);
        const measuring = event.shiftKey;
        const begin = { x: event.offsetX, y: event.offsetY };
        let last = begin;
        let moved = false;
        const timeAt = (x: number): number => this.state.from + ((this.state.to - this.state.from) * x) / this.width;
        const move = (now: PointerEvent): void => {
            moved ||= Math.abs(now.offsetX - begin.x) + Math.abs(now.offsetY - begin.y) > 4;
            if (!moved) return;
            if (measuring) {
                this.state.measure = [timeAt(begin.x), timeAt(now.offsetX)];
                this.redraw();
            } else {
                this.pan(last.x - now.offsetX);
                this.scrollBy(last.y - now.offsetY);
            }
            last = { x: now.offsetX, y: now.offsetY };
        };
        const end = (now: PointerEvent): void => {
            this.canvas.removeEventListener("pointermove", move);
            this.canvas.removeEventListener("pointerup", end);
            this.canvas.removeEventListener("pointercancel", end);
            if (!moved) this.click(now.offsetX, now.offsetY);
            else if (measuring && this.state.measure)
                replace(this.panel, rangePanel(this.timeline, ...sorted(this.state.measure)));
        };
        this.canvas.addEventListener("pointermove", move);
        this.canvas.addEventListener("pointerup", end);
        this.canvas.addEventListener("pointercancel", end);
    }

    /** The track and the place inside it at a height of the canvas. */
    private trackAt(y: number): { at: number; track: Track; inside: number } | null {
        if (y < RULER) return null;
        let top = RULER - this.state.scroll;
        for (let at = 0; at < this.timeline.tracks.length; at++) {
            const track = this.timeline.tracks[at] as Track;
            const tall = trackHeight(track);
            if (y < top + tall) return { at, track, inside: y - top };
            top += tall;
        }
        return null;
    }

    private eventAt(x: number, y: number): number {
        const place = this.trackAt(y);
        if (!place || place.track.folded || place.inside < HEAD) return -1;
        const row = place.track.rows[Math.floor((place.inside - HEAD) / ROW)];
        if (!row) return -1;
        const perPixel = (this.state.to - this.state.from) / this.width;
        const time = this.state.from + x * perPixel;
        const i = after(row.ends, time - 1.5 * perPixel);
        return i < row.events.length && (row.starts[i] ?? 0) <= time + 1.5 * perPixel ? (row.events[i] ?? -1) : -1;
    }

    private click(x: number, y: number): void {
        const place = this.trackAt(y);
        if (place && place.inside < HEAD) {
            place.track.folded = !place.track.folded;
            this.scrollBy(0);
            return;
        }
        this.state.measure = null;
        this.select(this.eventAt(x, y));
    }

    private hover(event: MouseEvent): void {
        const place = this.trackAt(event.offsetY);
        const hit = this.eventAt(event.offsetX, event.offsetY);
        this.canvas.style.cursor = hit >= 0 || (place && place.inside < HEAD) ? "pointer" : "default";
        this.canvas.title = hit >= 0 ? `${this.timeline.nameOf(hit)}\n${duration((this.timeline.dur[hit] ?? 0) / 1000)}` : "";
    }

    private select(event: number): void {
        this.state.selected = event;
        this.state.flows = event >= 0 ? this.timeline.flowsOf(event) : [];
        if (event < 0) replace(this.panel, note(HELP));
        else replace(this.panel, eventPanel(this.data, this.trace, this.timeline, event));
        this.redraw();
    }

    private zoomTo(event: number): void {
        const long = Math.max(this.timeline.dur[event] ?? 0, 200);
        const begin = this.timeline.start[event] ?? 0;
        this.show(begin - long, begin + 2 * long);
    }

    private find(): void {
        const text = this.search.value.trim();
        if (text === this.sought) return;
        this.sought = text;
        this.hits = text ? this.timeline.search(text) : new Uint32Array(0);
        this.hitAt = -1;
        const wanted = text.toLowerCase();
        this.state.hits = text
            ? Uint8Array.from(this.timeline.view.names, (name) => (name.toLowerCase().includes(wanted) ? 1 : 0))
            : null;
        this.found.textContent = text ? `${number(this.hits.length)} found` : "";
        this.redraw();
    }

    private searchKey(event: KeyboardEvent): void {
        if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
        if (event.key === "Escape") {
            event.preventDefault(); // which would empty the box
            this.canvas.focus();
        }
        if (event.key !== "Tab") event.stopPropagation();
    }

    /** Goes to the next or the previous match, and brings it into view. */
    private step(by: number): void {
        const count = this.hits.length;
        if (count === 0) return;
        this.hitAt = this.hitAt < 0 ? (by > 0 ? 0 : count - 1) : (this.hitAt + by + count) % count;
        const event = this.hits[this.hitAt] ?? 0;
        this.found.textContent = `${number(this.hitAt + 1)} of ${number(count)}`;
        const track = this.timeline.trackOfEvent(event);
        const about = this.timeline.tracks[track];
        if (about) {
            about.folded = false;
            const top = trackTop(this.timeline, track);
            if (top < this.state.scroll || top + HEAD + 3 * ROW > this.state.scroll + this.height - RULER)
                this.state.scroll = Math.max(top - 40, 0);
        }
        const span = this.state.to - this.state.from;
        const begin = this.timeline.start[event] ?? 0;
        const long = this.timeline.dur[event] ?? 0;
        if (long * 2000 < span)
            this.zoomTo(event); // too small to be seen
        else if (begin < this.state.from || begin + long > this.state.to)
            this.show(begin + long / 2 - span / 2, begin + long / 2 + span / 2);
        this.scrollBy(0);
        this.select(event);
    }

    private key(event: KeyboardEvent): void {
        if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
        const moves: Record<string, () => void> = {
            w: () => this.zoom(1 / 1.3),
            s: () => this.zoom(1.3),
            a: () => this.pan(-this.width * 0.15),
            d: () => this.pan(this.width * 0.15),
            ArrowLeft: () => this.pan(-this.width * 0.1),
            ArrowRight: () => this.pan(this.width * 0.1),
            ArrowUp: () => this.scrollBy(-60),
            ArrowDown: () => this.scrollBy(60),
            "+": () => this.zoom(1 / 1.5),
            "-": () => this.zoom(1.5),
            "0": () => this.show(0, this.timeline.end * 1.01),
            f: () => this.state.selected >= 0 && this.zoomTo(this.state.selected),
            n: () => this.step(1),
            N: () => this.step(-1),
            Escape: () => this.select(-1),
        };
        const move = moves[event.key];
        if (!move) return;
        event.preventDefault();
        event.stopPropagation();
        move();
    }
}

function sorted(pair: [number, number]): [number, number] {
    return pair[0] <= pair[1] ? pair : [pair[1], pair[0]];
}
