// The page: which trace, which tab. Tabs are built when first shown and again when the trace changes.

import { Data, NoView, traceLabel, type TraceRef } from "./data";
import { h, note, picker } from "./dom";
import { startTheme, toggleTheme } from "./theme";
import { timelineTab } from "./timeline/view";
import { diffTab } from "./views/diff";
import { distributedTab } from "./views/distributed";
import { kernelsTab } from "./views/kernels";
import { memoryTab } from "./views/memory";
import { modulesTab } from "./views/modules";
import { operatorsTab } from "./views/operators";
import { overviewTab } from "./views/overview";
import { rooflineTab } from "./views/roofline";

type Build = (data: Data, trace: number) => Promise<Node[]>;

const TABS: { id: string; title: string; build: Build }[] = [
    { id: "overview", title: "Overview", build: overviewTab },
    { id: "operators", title: "Operators", build: operatorsTab },
    { id: "kernels", title: "Kernels", build: kernelsTab },
    { id: "timeline", title: "Timeline", build: timelineTab },
    { id: "memory", title: "Memory", build: memoryTab },
    { id: "modules", title: "Modules", build: modulesTab },
    { id: "distributed", title: "Distributed", build: distributedTab },
    { id: "diff", title: "Diff", build: diffTab },
    { id: "roofline", title: "Roofline", build: rooflineTab },
];

class Page {
    private readonly tabs = new Map<string, HTMLButtonElement>();
    private readonly panels = new Map<string, HTMLElement>();
    private readonly pickers = h("div", { class: "pickers no-print" });
    private readonly subtitle = h("span", { class: "subtitle" });
    private tab = "overview";
    private trace = 0;

    constructor(
        private readonly data: Data,
        root: HTMLElement,
    ) {
        const list = h("div", {
            class: "tabs no-print",
            role: "tablist",
            "aria-label": "Views",
            onkeydown: (event: KeyboardEvent) => this.tabKey(event),
        });
        const main = h("main");
        for (const { id, title } of TABS) {
            const button = h(
                "button",
                { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, onclick: () => this.open(id) },
                title,
            );
            const panel = h("div", {
                role: "tabpanel",
                id: `panel-${id}`,
                "aria-labelledby": `tab-${id}`,
                class: "panel",
                hidden: true,
            });
            this.tabs.set(id, button);
            this.panels.set(id, panel);
            list.append(button);
            main.append(panel);
        }
        const theme = h(
            "button",
            { type: "button", class: "small no-print", title: "Switch between light and dark", onclick: toggleTheme },
            "Light / dark",
        );
        root.replaceChildren(h("header", {}, h("h1", {}, "Quern profile"), this.subtitle, this.pickers, theme), list, main);
        document.title = `${data.index.title} – Quern profile`;
        addEventListener("hashchange", () => this.fromAddress());
        addEventListener("keydown", (event) => this.pageKey(event));
        this.trace = this.own()[0]?.id ?? 0;
        this.fromAddress();
    }

    /** Traces of this profile, without those given to compare with. */
    private own(): TraceRef[] {
        return this.data.index.traces.filter((ref) => !ref.against);
    }

    private fromAddress(): void {
        const wanted = new URLSearchParams(location.hash.slice(1));
        const trace = Number(wanted.get("trace") ?? this.trace);
        if (this.own().some((ref) => ref.id === trace)) this.trace = trace;
        const tab = wanted.get("tab") ?? this.tab;
        this.tab = TABS.some(({ id }) => id === tab) ? tab : "overview";
        this.render();
    }

    private open(tab: string): void {
        this.tab = tab;
        this.address();
    }

    private choose(trace: number): void {
        this.trace = trace;
        this.address();
    }

    private address(): void {
        const next = `#${new URLSearchParams({ tab: this.tab, trace: String(this.trace) })}`;
        if (location.hash === next) this.render();
        else location.hash = next; // hashchange renders
    }

    private render(): void {
        const ref = this.own().find(({ id }) => id === this.trace);
        this.subtitle.textContent = ref ? traceLabel(ref) : this.data.index.title;
        this.renderPickers(ref);
        for (const { id, build } of TABS) {
            const [button, panel] = [this.tabs.get(id), this.panels.get(id)];
            if (!button || !panel) continue;
            const current = id === this.tab;
            button.setAttribute("aria-selected", String(current));
            button.tabIndex = current ? 0 : -1;
            panel.hidden = !current;
            if (current && panel.dataset["trace"] !== String(this.trace)) void this.fill(panel, build);
        }
        document.body.dataset["tab"] = this.tab;
    }

    private async fill(panel: HTMLElement, build: Build): Promise<void> {
        const trace = this.trace;
        panel.dataset["trace"] = String(trace);
        delete panel.dataset["ready"];
        panel.replaceChildren(h("p", { class: "loading" }, this.data.live ? "Reading the trace…" : "Unpacking…"));
        let nodes: Node[];
        try {
            nodes = await build(this.data, trace);
        } catch (fault) {
            nodes = [note(fault instanceof Error ? fault.message : String(fault))];
            if (!(fault instanceof NoView)) delete panel.dataset["trace"]; // worth another try
        }
        if (this.trace !== trace) return; // another trace was chosen meanwhile
        panel.replaceChildren(...nodes);
        panel.dataset["ready"] = "";
    }

    /** Run, worker and span, each only where there is a choice. */
    private renderPickers(ref: TraceRef | undefined): void {
        this.pickers.replaceChildren();
        if (!ref) return;
        const all = this.own();
        const add = (label: string, key: "run" | "worker" | "span", same: (other: TraceRef) => boolean): void => {
            const values = [...new Set(all.filter(same).map((other) => other[key]))];
            if (values.length < 2) return;
            const pick = (value: string): void => {
                const exact = all.find(
                    (other) => same(other) && other[key] === value && (key !== "worker" || other.span === ref.span),
                );
                const any = exact ?? all.find((other) => same(other) && other[key] === value);
                if (any) this.choose(any.id);
            };
            this.pickers.append(
                picker(
                    label,
                    values.map((value) => ({ value, label: value })),
                    ref[key],
                    pick,
                    `pick-${key}`,
                ),
            );
        };
        add("Run", "run", () => true);
        add("Worker", "worker", (other) => other.run === ref.run);
        add("Span", "span", (other) => other.run === ref.run && other.worker === ref.worker);
    }

    private tabKey(event: KeyboardEvent): void {
        const ids = TABS.map(({ id }) => id);
        const at = ids.indexOf(this.tab);
        const to: Record<string, number> = {
            ArrowRight: (at + 1) % ids.length,
            ArrowLeft: (at + ids.length - 1) % ids.length,
            Home: 0,
            End: ids.length - 1,
        };
        const next = to[event.key];
        if (next === undefined) return;
        event.preventDefault();
        this.open(ids[next] ?? "overview");
        this.tabs.get(ids[next] ?? "")?.focus();
    }

    /** `/` goes to the search or filter of the tab at hand. */
    private pageKey(event: KeyboardEvent): void {
        const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
        if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
        const box = this.panels.get(this.tab)?.querySelector<HTMLInputElement>("input[type=search]");
        if (!box) return;
        event.preventDefault();
        box.focus();
    }
}

async function start(): Promise<void> {
    startTheme();
    const root = document.getElementById("app");
    if (!root) return;
    try {
        const data = await Data.open();
        if (data.index.traces.length === 0) root.replaceChildren(note("This profile holds no trace."));
        else new Page(data, root);
    } catch (fault) {
        root.replaceChildren(note(`The profile cannot be read: ${(fault as Error).message}`));
    }
}

void start();
