// Where views come from: blocks inside this file (a report) or the server that gave the page. Both answer the same JSON.

import type { TraceInfo } from "./types";

export interface TraceRef {
    id: number;
    run: string;
    worker: string;
    span: string;
    against?: boolean; // belongs to the profile that was given to compare with
}

export interface Index {
    title: string;
    version: string;
    traces: TraceRef[];
}

export interface ViewQuery {
    other?: number; // the right side of a diff
    path?: string; // which part of the view
    start_ts?: string;
    end_ts?: string;
}

/** Why there is no such view, in a sentence for the reader. */
export class NoView extends Error {}

export interface Source {
    readonly live: boolean;
    index(): Promise<Index>;
    view<T>(name: string, trace: number, query?: ViewQuery): Promise<T>;
}

/** JSON in which a number may be NaN or infinite, as the reference prints what a broken trace gives; those become null. */
function parse(text: string): unknown {
    try {
        return JSON.parse(text) as unknown;
    } catch {
        return JSON.parse(
            text.replace(/"(?:\\.|[^"\\])*"|-?\bInfinity\b|\bNaN\b/g, (token) => (token[0] === '"' ? token : "null")),
        ) as unknown;
    }
}

async function unpack(base64: string): Promise<unknown> {
    const packed = await bytesOf(base64);
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return parse(await new Response(stream).text());
}

async function bytesOf(base64: string): Promise<ArrayBuffer> {
    const text = atob(base64.trim());
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes.buffer;
}

class Report implements Source {
    readonly live = false;

    async index(): Promise<Index> {
        return this.read<Index>('script[data-view="index"]', "The report has no index.");
    }

    async view<T>(name: string, trace: number, query: ViewQuery = {}): Promise<T> {
        let selector = `script[data-view="${name}"][data-trace="${trace}"]`;
        if (query.other !== undefined) selector += `[data-other="${query.other}"]`;
        return this.read<T>(selector, "This report does not hold that view; quern profile serve answers it.");
    }

    private async read<T>(selector: string, missing: string): Promise<T> {
        const block = document.querySelector<HTMLScriptElement>(selector);
        if (!block) throw new NoView(missing);
        const text = block.textContent ?? "";
        const value = block.dataset["gz"] === undefined ? parse(text) : await unpack(text);
        if (block.dataset["error"] !== undefined) throw new NoView(String(value));
        return value as T;
    }
}

class Server implements Source {
    readonly live = true;

    async index(): Promise<Index> {
        return this.get<Index>("api/index");
    }

    async view<T>(name: string, trace: number, query: ViewQuery = {}): Promise<T> {
        const parameters = new URLSearchParams({ view: name, trace: String(trace) });
        for (const [key, value] of Object.entries(query)) if (value !== undefined) parameters.set(key, String(value));
        return this.get<T>(`api/view?${parameters}`);
    }

    private async get<T>(path: string): Promise<T> {
        let answer: Response;
        try {
            answer = await fetch(path);
        } catch {
            throw new NoView("The server does not answer; is quern profile serve still running?");
        }
        const value = parse(await answer.text());
        if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
        const fault = (value as { error?: unknown } | null)?.error;
        if (typeof fault === "string") throw new NoView(fault);
        return value as T;
    }
}

/** Remembers answers, so that going back to a tab asks nothing again. */
export class Data {
    private readonly seen = new Map<string, Promise<unknown>>();
    private constructor(
        private readonly source: Source,
        readonly index: Index,
    ) {}

    static async open(): Promise<Data> {
        const source: Source = document.querySelector('script[data-view="index"]') ? new Report() : new Server();
        return new Data(source, await source.index());
    }

    get live(): boolean {
        return this.source.live;
    }

    view<T>(name: string, trace: number, query: ViewQuery = {}): Promise<T> {
        const key = JSON.stringify([name, trace, query]);
        let answer = this.seen.get(key);
        if (!answer) {
            answer = this.source.view<T>(name, trace, query);
            this.seen.set(key, answer);
            answer.catch((fault) => {
                if (!(fault instanceof NoView)) this.seen.delete(key);
            });
        }
        return answer as Promise<T>;
    }

    /** The view, or null when the trace has none. */
    async maybe<T>(name: string, trace: number, query: ViewQuery = {}): Promise<T | null> {
        try {
            return await this.view<T>(name, trace, query);
        } catch (fault) {
            if (fault instanceof NoView) return null;
            throw fault;
        }
    }

    info(trace: number): Promise<TraceInfo | null> {
        return this.maybe<TraceInfo>("info", trace);
    }
}

export function traceLabel(ref: TraceRef): string {
    const run = ref.run && ref.run !== "." ? `${ref.run} · ` : "";
    const span = ref.span === "default" ? "" : ` · span ${ref.span}`;
    return `${ref.against ? "compared: " : ""}${run}${ref.worker}${span}`;
}
