// Charts: bars by step and lines over time with uPlot; shares as sorted horizontal bars in plain HTML, which print well.

import uPlot from "uplot";
import { h, replace } from "./dom";
import { brief, duration, number, percent, timeScale } from "./format";
import { colour, onTheme } from "./theme";

const FONT = '12px system-ui, "Segoe UI", sans-serif';

/** Axis colours from the theme; `size` leaves room for the numbers. */
function axis(label: string, size: number, extra: Partial<uPlot.Axis> = {}): uPlot.Axis {
    return {
        label,
        font: FONT,
        labelFont: FONT,
        labelSize: 18,
        size,
        stroke: () => colour("--muted"),
        grid: { stroke: () => colour("--grid"), width: 1 },
        ticks: { stroke: () => colour("--grid"), width: 1, size: 4 },
        ...extra,
    };
}

/** A uPlot that follows the width of its box and the theme, and goes away with its box. */
function plot(box: HTMLElement, options: Omit<uPlot.Options, "width">, data: uPlot.AlignedData): uPlot {
    const chart = new uPlot({ ...options, width: Math.max(box.clientWidth, 320) }, data, box);
    const watcher = new ResizeObserver(() => {
        if (box.clientWidth > 0 && box.clientWidth !== chart.width)
            chart.setSize({ width: box.clientWidth, height: options.height });
    });
    watcher.observe(box);
    onTheme(box, () => chart.redraw(false));
    return chart;
}

/** Builds the chart once its box is in the page and has a width. */
function whenShown(box: HTMLElement, build: () => void): HTMLElement {
    const watcher = new ResizeObserver(() => {
        if (box.clientWidth === 0) return;
        watcher.disconnect();
        build();
    });
    watcher.observe(box);
    return box;
}

export interface Part {
    name: string;
    colour: string; // a variable of the style, --c1 and so on
    values: number[]; // microseconds
}

export function legend(parts: { name: string; colour: string }[]): HTMLElement {
    return h(
        "ul",
        { class: "legend" },
        ...parts.map((part) => {
            const dot = h("span", { class: "dot" });
            dot.style.background = `var(${part.colour})`;
            return h("li", {}, dot, part.name);
        }),
    );
}

/** Stacked bars, one a step. A read-out under the chart names the parts of the step under the pointer. */
export function stackedSteps(steps: string[], parts: Part[], height = 260): HTMLElement {
    const box = h("div", { class: "chart" });
    const readout = h("p", { class: "readout", "aria-live": "off" }, "Point at a step to read its parts.");
    const sums = parts.map(() => new Array<number>(steps.length).fill(0));
    const totals = new Array<number>(steps.length).fill(0);
    parts.forEach((part, p) =>
        part.values.forEach((value, s) => {
            totals[s] = (totals[s] ?? 0) + value;
            (sums[p] as number[])[s] = totals[s] ?? 0;
        }),
    );
    const { unit, scale } = timeScale(totals.reduce((most, total) => Math.max(most, total), 0));
    const bars = uPlot.paths.bars?.({ size: [0.7, 80] });
    const series: uPlot.Series[] = [{ label: "Step" }];
    const data: number[][] = [steps.map((_, s) => s)];
    for (let p = parts.length - 1; p >= 0; p--) {
        // tallest first, so that the lower parts are drawn over it
        const part = parts[p] as Part;
        data.push((sums[p] as number[]).map((value) => value / scale));
        series.push({
            label: part.name,
            fill: () => colour(part.colour),
            width: 0,
            points: { show: false },
            ...(bars && { paths: bars }),
        });
    }
    const say = (at: number | null | undefined): void => {
        if (at === null || at === undefined) return;
        const list = parts.map((part) => `${part.name} ${duration(part.values[at] ?? 0)}`).join(", ");
        readout.textContent = `Step ${steps[at]}: ${duration(totals[at] ?? 0)} in all; ${list}`;
    };
    const options: Omit<uPlot.Options, "width"> = {
        height,
        series,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
        scales: {
            x: { time: false, range: () => [-0.6, steps.length - 0.4] },
            y: { range: (_, __, most) => [0, most * 1.05 || 1] },
        },
        axes: [
            axis("Step", 34, {
                grid: { show: false },
                splits: () => pickSteps(steps.length),
                values: (_, at) => at.map((s) => steps[s] ?? ""),
            }),
            axis(`Time (${unit})`, 62, { values: (_, at) => at.map(brief) }),
        ],
        hooks: { setCursor: [(chart) => say(chart.cursor.idx)] },
    };
    whenShown(box, () => void plot(box, options, data as uPlot.AlignedData));
    return h("div", {}, legend(parts), box, readout);
}

function pickSteps(count: number): number[] {
    const stride = Math.ceil(count / 16);
    return Array.from({ length: Math.ceil(count / stride) }, (_, i) => i * stride);
}

export interface Line {
    name: string;
    colour: string;
    values: (number | null)[];
    fill?: boolean;
}

export interface LineOptions {
    xLabel: string;
    yLabel: string;
    height?: number;
    most?: number; // fixed top of the vertical axis
    steps?: boolean; // values hold until the next point
    onSelect?: (from: number | null, to: number | null) => void;
}

export function lines(x: number[], all: Line[], options: LineOptions): HTMLElement {
    const box = h("div", { class: "chart" });
    const readout = h("p", { class: "readout" }, options.onSelect ? "Drag over the curve to look at a part of the time." : " ");
    const stepped = options.steps ? uPlot.paths.stepped?.({ align: 1 }) : undefined;
    const series: uPlot.Series[] = [{ label: options.xLabel }];
    for (const line of all)
        series.push({
            label: line.name,
            stroke: () => colour(line.colour),
            width: 1.5,
            points: { show: false },
            ...(line.fill && { fill: () => `${colour(line.colour)}33` }),
            ...(stepped && { paths: stepped }),
        });
    const say = (at: number | null | undefined): void => {
        if (at === null || at === undefined) return;
        const list = all.map((line) => `${line.name} ${brief(line.values[at] ?? NaN)}`).join(", ");
        readout.textContent = `${options.xLabel} ${brief(x[at] ?? NaN)}: ${list}`;
    };
    const full = (chart: uPlot): boolean => {
        const scale = chart.scales["x"];
        return !scale || ((scale.min ?? 0) <= (x[0] ?? 0) && (scale.max ?? 0) >= (x[x.length - 1] ?? 0));
    };
    const chartOptions: Omit<uPlot.Options, "width"> = {
        height: options.height ?? 220,
        series,
        legend: { show: false },
        cursor: { y: false, drag: { x: true, y: false, setScale: true }, points: { size: 6 } },
        scales: { x: { time: false }, y: { range: (_, __, most) => [0, options.most ?? (most * 1.05 || 1)] } },
        axes: [
            axis(options.xLabel, 34, { values: (_, at) => at.map(brief) }),
            axis(options.yLabel, 62, { values: (_, at) => at.map(brief) }),
        ],
        hooks: {
            setCursor: [(chart) => say(chart.cursor.idx)],
            setScale: [
                (chart, key) => {
                    if (key !== "x" || !options.onSelect) return;
                    const scale = chart.scales["x"];
                    if (full(chart)) options.onSelect(null, null);
                    else options.onSelect(scale?.min ?? null, scale?.max ?? null);
                },
            ],
        },
    };
    whenShown(box, () => void plot(box, chartOptions, [x, ...all.map((line) => line.values)] as uPlot.AlignedData));
    return h("div", {}, legend(all), box, readout);
}

export interface Dot {
    x: number;
    y: number;
    name: string;
    colour: string;
}

export interface Roof {
    name: string;
    colour: string;
    slope: number; // height per x, up to
    flat: number; // this height
}

const powersOfTen = (_: uPlot, at: (number | null)[]): (number | null)[] =>
    at.map((value) => (value !== null && Number.isInteger(Number(Math.log10(value).toFixed(6))) ? value : null));

/** Points under roofs on logarithmic axes. */
export function scatter(
    dots: Dot[],
    kinds: { name: string; colour: string }[],
    roofs: Roof[],
    xLabel: string,
    yLabel: string,
    height = 380,
): HTMLElement {
    const box = h("div", { class: "chart" });
    const readout = h("p", { class: "readout" }, "Point at a dot to read it.");
    const knees = roofs.map((roof) => roof.flat / roof.slope);
    const low = Math.min(...dots.map((dot) => dot.x), ...knees, 0.1) / 2;
    const high = Math.max(...dots.map((dot) => dot.x), ...knees, 10) * 3;
    const x = [low, ...knees.sort((a, b) => a - b), high];
    const roofSeries = roofs.map((roof): uPlot.Series => ({
        label: roof.name,
        stroke: () => colour(roof.colour),
        width: 2,
        points: { show: false },
    }));
    const data: number[][] = [x, ...roofs.map((roof) => x.map((value) => Math.min(roof.flat, value * roof.slope)))];
    const heights = [...dots.map((dot) => dot.y), ...data.slice(1).flat()];
    const bottom = Math.min(...heights) / 2;
    const top = Math.max(...heights) * 2;
    const drawDots = (chart: uPlot): void => {
        const { ctx } = chart;
        ctx.save();
        for (const dot of dots) {
            ctx.beginPath();
            ctx.fillStyle = `${colour(dot.colour)}cc`;
            ctx.arc(chart.valToPos(dot.x, "x", true), chart.valToPos(dot.y, "y", true), 4.5 * devicePixelRatio, 0, 7);
            ctx.fill();
        }
        ctx.restore();
    };
    const say = (chart: uPlot): void => {
        const { left, top: above } = chart.cursor;
        if (left === undefined || above === undefined || left < 0) return;
        let best: Dot | null = null;
        let nearest = 20 * 20;
        for (const dot of dots) {
            const away = (chart.valToPos(dot.x, "x") - left) ** 2 + (chart.valToPos(dot.y, "y") - above) ** 2;
            if (away < nearest) [best, nearest] = [dot, away];
        }
        if (best) readout.textContent = `${best.name}: ${brief(best.x)} ${xLabel}, ${brief(best.y)} ${yLabel}`;
    };
    const sparse: Partial<uPlot.Axis> = {
        filter: powersOfTen,
        values: (_, at) => at.map((value) => (value === null ? "" : brief(value))),
        grid: { stroke: () => colour("--grid"), width: 1, filter: powersOfTen },
    };
    const options: Omit<uPlot.Options, "width"> = {
        height,
        series: [{ label: xLabel }, ...roofSeries],
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { show: false } },
        scales: { x: { time: false, distr: 3, range: () => [low, high] }, y: { distr: 3, range: () => [bottom, top] } },
        axes: [axis(xLabel, 34, sparse), axis(yLabel, 70, sparse)],
        hooks: { draw: [drawDots], setCursor: [say] },
    };
    whenShown(box, () => void plot(box, options, data as uPlot.AlignedData));
    return h("div", {}, legend([...roofs, ...kinds]), box, readout);
}

/** The largest rows as horizontal bars with name, value and share of the whole; what is left over is one more line. */
export function shareBars(rows: [string, number][], unit: string, most = 8): HTMLElement {
    const total = rows.reduce((sum, row) => sum + row[1], 0);
    const list = h("ol", { class: "shares" });
    const build = (count: number): void => {
        const shown: [string, number, boolean][] = rows.slice(0, count).map(([name, value]) => [name, value, false]);
        const rest = rows.slice(count).reduce((sum, row) => sum + row[1], 0);
        if (rest > 0) shown.push([`${rows.length - count} others`, rest, true]);
        const largest = rows[0]?.[1] || 1;
        replace(
            list,
            ...shown.map(([name, value, others]) => {
                const fill = h("span", { class: "fill" });
                fill.style.width = `${(100 * value) / largest}%`;
                return h(
                    "li",
                    others ? { class: "rest" } : { title: name },
                    h("span", { class: "name" }, name),
                    h("span", { class: "value" }, `${number(value)} ${unit}`, h("small", {}, percent(value / total))),
                    others ? null : h("span", { class: "track" }, fill),
                );
            }),
        );
    };
    build(most);
    if (rows.length <= most) return list;
    const more = h(
        "button",
        {
            type: "button",
            class: "small no-print",
            onclick: () => {
                const all = more.textContent === "Show more";
                build(all ? Math.min(rows.length, 50) : most);
                more.textContent = all ? "Show fewer" : "Show more";
            },
        },
        "Show more",
    );
    return h("div", {}, list, more);
}

export interface BarRow {
    name: string;
    values: number[];
}

/** One stacked horizontal bar a row, all on one scale. */
export function stackedRows(rows: BarRow[], names: string[], colours: string[]): HTMLElement {
    const total = (row: BarRow): number => row.values.reduce((sum, value) => sum + Math.max(value, 0), 0);
    const largest = rows.reduce((most, row) => Math.max(most, total(row)), 0) || 1;
    const items = rows.map((row) => {
        const track = h("span", { class: "track stacked" });
        row.values.forEach((value, p) => {
            const piece = h("span", { class: "fill", title: `${names[p]}: ${number(value)} us` });
            piece.style.width = `${(100 * Math.max(value, 0)) / largest}%`;
            piece.style.background = `var(${colours[p]})`;
            track.append(piece);
        });
        const text = row.values.map((value, p) => `${names[p]} ${number(value)} us`).join(" · ");
        return h("li", {}, h("span", { class: "name" }, row.name), h("span", { class: "value" }, text), track);
    });
    return h(
        "div",
        {},
        legend(names.map((name, p) => ({ name, colour: colours[p] ?? "--c1" }))),
        h("ol", { class: "shares wide" }, ...items),
    );
}
