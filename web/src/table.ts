// A table that sorts by any column, filters as one types, counts its rows and copies itself as CSV.

import { h, replace } from "./dom";
import { csvField, number } from "./format";
import type { Cell, ViewColumn } from "./types";

export interface TableColumn {
    title: string;
    numeric: boolean;
    tooltip?: string | undefined;
    bar?: boolean; // draws the share of the largest value behind the number
    format?: (value: Cell) => string;
}

export interface TableOptions {
    name: string; // what the rows are, for the filter's label
    columns: TableColumn[];
    rows: Cell[][];
    sort?: number; // column; descending for numbers
    byMagnitude?: boolean; // sort numbers by their size whatever their sign
    tall?: boolean; // may use the whole page, not only a window of it
    /** Makes what a row shows below itself when opened; null for rows that have nothing. */
    detail?: (at: number) => (() => Promise<Node>) | null;
}

const BATCH = 150; // rows added at a time while scrolling

export function columnsOf(columns: ViewColumn[], bar?: string): TableColumn[] {
    return columns.map((column) => ({
        title: column.name,
        numeric: column.type === "number",
        tooltip: column.tooltip || undefined,
        bar: column.name === bar,
    }));
}

function compare(a: Cell, b: Cell, magnitude: boolean): number {
    if (a === b) return 0;
    if (a === null || a === "") return 1; // absent goes last either way; the caller flips only present ones
    if (b === null || b === "") return -1;
    if (typeof a === "number" && typeof b === "number") return magnitude ? Math.abs(a) - Math.abs(b) : a - b;
    const x = Number(a);
    const y = Number(b);
    if (typeof a === "string" && typeof b === "string" && Number.isFinite(x) && Number.isFinite(y)) return x - y;
    return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
}

export class Table {
    readonly element: HTMLElement;
    private readonly body = h("tbody");
    private readonly count = h("span", { class: "count", "aria-live": "polite" });
    private readonly filter: HTMLInputElement;
    private readonly heads: HTMLTableCellElement[] = [];
    private readonly scroll: HTMLElement;
    private readonly largest: number[];
    private order: number[] = [];
    private shown = 0;
    private sortBy: number;
    private descending: boolean;
    private readonly searchable: string[];

    constructor(private readonly options: TableOptions) {
        const { columns, rows } = options;
        this.sortBy = options.sort ?? -1;
        this.descending = columns[this.sortBy]?.numeric ?? false;
        this.searchable = rows.map((row) =>
            row
                .filter((cell) => typeof cell === "string")
                .join("\n")
                .toLowerCase(),
        );
        this.largest = columns.map((column, c) =>
            column.bar ? rows.reduce((most, row) => Math.max(most, Math.abs(Number(row[c]) || 0)), 0) : 0,
        );
        this.filter = h("input", {
            type: "search",
            placeholder: `Filter ${options.name}`,
            "aria-label": `Filter ${options.name}`,
            oninput: () => this.update(),
            onsearch: () => this.update(),
        });
        const head = h("tr");
        columns.forEach((column, c) => head.append(this.header(column, c)));
        const table = h("table", {}, h("thead", {}, head), this.body);
        this.scroll = h(
            "div",
            {
                class: options.tall ? "scroll tall" : "scroll",
                tabindex: 0,
                role: "region",
                "aria-label": options.name,
                onscroll: () => this.more(),
            },
            table,
        );
        const copy = h("button", { type: "button", class: "small", onclick: () => void this.copy(copy) }, "Copy CSV");
        this.element = h(
            "div",
            { class: "table" },
            h("div", { class: "bar no-print" }, this.filter, this.count, copy),
            this.scroll,
        );
        this.update();
    }

    private header(column: TableColumn, at: number): HTMLTableCellElement {
        const button = h("button", { type: "button", title: column.tooltip, onclick: () => this.sort(at) }, column.title);
        const cell = h("th", { scope: "col", class: column.numeric ? "num" : "" }, button);
        this.heads.push(cell);
        return cell;
    }

    private sort(column: number): void {
        if (this.sortBy === column) this.descending = !this.descending;
        else this.descending = this.options.columns[column]?.numeric ?? false;
        this.sortBy = column;
        this.update();
    }

    /** Filters and sorts again; equal rows keep the order of the view. */
    private update(): void {
        const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        const { rows } = this.options;
        const order: number[] = [];
        for (let i = 0; i < rows.length; i++) if (words.every((word) => this.searchable[i]?.includes(word))) order.push(i);
        const c = this.sortBy;
        if (c >= 0) {
            const flip = this.descending ? -1 : 1;
            const magnitude = this.options.byMagnitude ?? false;
            const absent = (cell: Cell | undefined): boolean => cell === null || cell === undefined || cell === "";
            order.sort((i, j) => {
                const a = rows[i]?.[c] ?? null;
                const b = rows[j]?.[c] ?? null;
                return (absent(a) || absent(b) ? 1 : flip) * compare(a, b, magnitude) || i - j;
            });
        }
        this.heads.forEach((cell, at) =>
            at === c
                ? cell.setAttribute("aria-sort", this.descending ? "descending" : "ascending")
                : cell.removeAttribute("aria-sort"),
        );
        this.order = order;
        this.shown = 0;
        this.body.replaceChildren();
        this.scroll.scrollTop = 0;
        this.grow();
        const all = number(rows.length);
        this.count.textContent = order.length === rows.length ? `${all} rows` : `${number(order.length)} of ${all} rows`;
    }

    private more(): void {
        const { scrollTop, clientHeight, scrollHeight } = this.scroll;
        if (scrollTop + clientHeight > scrollHeight - 400) this.grow();
    }

    private grow(): void {
        const end = Math.min(this.shown + BATCH, this.order.length);
        const batch = document.createDocumentFragment();
        for (; this.shown < end; this.shown++) batch.append(this.row(this.order[this.shown] ?? 0));
        this.body.append(batch);
        if (this.order.length === 0 && !this.body.firstChild)
            this.body.append(h("tr", {}, h("td", { colspan: this.options.columns.length, class: "empty" }, "Nothing here.")));
    }

    private row(at: number): HTMLTableRowElement {
        const row = this.options.rows[at] ?? [];
        const tr = h("tr");
        this.options.columns.forEach((column, c) => tr.append(this.cell(column, row[c] ?? null, c)));
        const first = tr.firstElementChild as HTMLElement | null;
        const detail = this.options.detail?.(at);
        if (detail && first) this.addDetail(tr, first, detail);
        else if (this.options.detail) first?.prepend(h("span", { class: "twist" }));
        first?.addEventListener("click", (event) => {
            if (event.target === first) tr.classList.toggle("open"); // long names unfold
        });
        return tr;
    }

    private cell(column: TableColumn, value: Cell, at: number): HTMLTableCellElement {
        const plain = typeof value === "number" ? number(value) : value === null ? "" : String(value);
        const text = column.format ? column.format(value) : plain;
        const td = h("td", { class: column.numeric ? "num" : "text", title: column.numeric ? null : text }, text);
        const most = this.largest[at] ?? 0;
        if (column.bar && most > 0 && typeof value === "number") {
            td.classList.add("share");
            td.style.setProperty("--share", `${(100 * Math.abs(value)) / most}%`);
        }
        return td;
    }

    private addDetail(tr: HTMLTableRowElement, cell: HTMLElement, make: () => Promise<Node>): void {
        const button = h(
            "button",
            { type: "button", class: "twist", "aria-expanded": "false", title: "Show what is behind this row" },
            "▸",
        );
        let below: HTMLTableRowElement | null = null;
        button.addEventListener("click", () => {
            if (below) {
                below.remove();
                below = null;
            } else {
                const td = h("td", { colspan: this.options.columns.length, class: "detail" }, "Reading…");
                below = h("tr", {}, td);
                tr.after(below);
                void make().then(
                    (node) => replace(td, node),
                    (fault: Error) => replace(td, fault.message),
                );
            }
            button.textContent = below ? "▾" : "▸";
            button.setAttribute("aria-expanded", String(below !== null));
        });
        cell.prepend(button);
    }

    private csv(): string {
        const { columns, rows } = this.options;
        const lines = [columns.map((column) => csvField(column.title)).join(",")];
        for (const at of this.order) lines.push(columns.map((_, c) => csvField(rows[at]?.[c])).join(","));
        return lines.join("\r\n") + "\r\n";
    }

    private async copy(button: HTMLButtonElement): Promise<void> {
        const text = this.csv();
        let done = true;
        try {
            await navigator.clipboard.writeText(text);
        } catch {
            done = copyOldWay(text);
        }
        button.textContent = done ? "Copied" : "Not allowed here";
        setTimeout(() => (button.textContent = "Copy CSV"), 1500);
    }
}

function copyOldWay(text: string): boolean {
    const area = h("textarea", { class: "off-screen" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
}
