// Building the page from values. Text is always set as text, so nothing that a trace holds can become markup.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

function setProp(node: Element, key: string, value: Props[string]): void {
    if (value === null || value === undefined || value === false) return;
    if (typeof value === "function") node.addEventListener(key.replace(/^on/, ""), value as EventListener);
    else node.setAttribute(key, value === true ? "" : String(value));
}

export function h<K extends keyof HTMLElementTagNameMap>(
    tag: K,
    props: Props = {},
    ...children: Child[]
): HTMLElementTagNameMap[K] {
    const node = document.createElement(tag);
    for (const key of Object.keys(props)) setProp(node, key, props[key]);
    append(node, children);
    return node;
}

export function svg(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const key of Object.keys(props)) setProp(node, key, props[key]);
    append(node, children);
    return node;
}

function append(node: Element, children: Child[]): void {
    for (const child of children) {
        if (child === null || child === undefined || child === false) continue;
        node.append(child instanceof Node ? child : String(child));
    }
}

export function replace(node: Element, ...children: Child[]): void {
    node.replaceChildren();
    append(node, children);
}

const KEPT_TAGS = new Set(["UL", "LI", "A", "B", "BR"]);

/** The advice is HTML with fixed texts in it. Lists, links to the web, bold and breaks are kept; of all else only the text. */
export function safeHtml(html: string): DocumentFragment {
    const parsed = new DOMParser().parseFromString(html, "text/html");
    const result = document.createDocumentFragment();
    copySafe(parsed.body, result);
    return result;
}

function copySafe(from: Node, to: Node): void {
    for (const node of Array.from(from.childNodes)) {
        if (node.nodeType === Node.TEXT_NODE) to.appendChild(document.createTextNode(node.textContent ?? ""));
        if (node.nodeType !== Node.ELEMENT_NODE) continue;
        const element = node as Element;
        if (element.tagName === "SCRIPT" || element.tagName === "STYLE") continue;
        let into: Node = to;
        if (KEPT_TAGS.has(element.tagName)) {
            const copy = document.createElement(element.tagName);
            const href = webAddress(element.getAttribute("href") ?? "");
            if (element.tagName === "A" && href) {
                copy.setAttribute("href", href);
                copy.setAttribute("target", "_blank");
                copy.setAttribute("rel", "noopener noreferrer");
            }
            into = to.appendChild(copy);
        }
        copySafe(element, into);
    }
}

/** http and https only. One fixed text has its address printed as a tuple, ('https://...',): that is undone. */
function webAddress(text: string): string | null {
    const bare = text.replace(/^\('(.*)',\)$/, "$1");
    return /^https?:\/\//i.test(bare) ? bare : null;
}

export interface Choice {
    value: string;
    label: string;
}

/** A labelled drop-down; `onpick` gets the chosen value. */
export function picker(
    label: string,
    choices: Choice[],
    value: string,
    onpick: (value: string) => void,
    id?: string,
): HTMLElement {
    const select = h("select", { id, onchange: () => onpick(select.value) });
    for (const choice of choices) select.append(h("option", { value: choice.value }, choice.label));
    select.value = value;
    return h("label", { class: "picker" }, h("span", {}, label), select);
}

export function section(title: string, ...children: Child[]): HTMLElement {
    return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

export function note(text: string): HTMLElement {
    return h("p", { class: "note" }, text);
}
