/** UI schema 2.0 as components. Nothing in it makes a request, and nothing happens before somebody presses it. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { Markdown } from "../chat/Markdown";
import { Button } from "../components/Button";
import { CopyButton } from "../components/CopyButton";
import { t } from "../i18n";
import { type Action, isInlinePicture, isLink, isObject, type Node, oneOf, readAction, readTree, text } from "./schema";
import "./cards.css";

interface Props {
    /** The `ui_schema`, or its root node alone. */
    tree: unknown;
    /** What to do with an action besides links and copying, which need nobody. Without it such buttons do nothing. */
    onAction?: (action: Action) => void;
}

export function UiSchema({ tree, onAction }: Props) {
    const read = useMemo(() => readTree(tree), [tree]);
    if (read === null) return null;
    return (
        <div class={`ui-schema ui-theme-${read.theme}`} lang={read.locale} data-status={read.status}>
            {drawn(read.root, onAction)}
        </div>
    );
}

function drawn(node: Node, onAction: Props["onAction"], key?: number): ComponentChildren {
    const { members } = node;
    const common = { key, "data-status": node.status, "data-node": node.id };
    const children = () => node.children.map((child, index) => drawn(child, onAction, index));
    switch (node.type) {
        case "stack": {
            const direction = oneOf(members["direction"], ["vertical", "horizontal"]) ?? "vertical";
            const align = oneOf(members["align"], ["start", "center", "end", "stretch"]) ?? "stretch";
            return (
                <div {...common} class={`ui-stack ui-${direction} ui-align-${align} ${looks(node)}`}>
                    {children()}
                </div>
            );
        }
        case "grid":
            return (
                <div {...common} class={`ui-grid ui-columns-${columns(members["columns"])} ${looks(node)}`}>
                    {children()}
                </div>
            );
        case "text":
            return <Words key={key} node={node} />;
        case "icon":
            return <Sign key={key} node={node} />;
        case "badge":
            return (
                <span {...common} class={`badge ${TONES[node.status ?? "info"]}`}>
                    {text(members["label"])}
                </span>
            );
        case "button":
            return <Pressed key={key} node={node} onAction={onAction} />;
        case "image":
            return <Picture key={key} node={node} />;
        case "kv":
            return <Pairs key={key} node={node} />;
        case "divider":
            return <hr {...common} class="ui-divider" />;
        default:
            return text(members["content"]) || text(members["label"]) || null;
    }
}

const TONES = { info: "accent", success: "good", warning: "warning", error: "danger", pending: "" } as const;
const KINDS = { primary: "primary", secondary: "normal", ghost: "plain", danger: "danger" } as const;

function looks({ members }: Node): string {
    const gap = oneOf(members["gap"], ["none", "sm", "md", "lg"]) ?? "md";
    return `ui-gap-${gap}${members["appearance"] === "card" ? " card" : ""}`;
}

function columns(value: unknown): number {
    return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 12 ? value : 2;
}

function Words({ node }: { node: Node }) {
    const role = oneOf(node.members["role"], ["title", "subtitle", "body", "caption", "code"]) ?? "body";
    const words = text(node.members["content"]);
    const common = { class: `ui-text ui-${role}`, "data-status": node.status, "data-node": node.id };
    if (role === "code") {
        return (
            <pre {...common}>
                <code>{words}</code>
            </pre>
        );
    }
    if (node.members["format"] === "markdown") {
        return (
            <div {...common}>
                <Markdown text={words} />
            </div>
        );
    }
    return <p {...common}>{words}</p>;
}

function Sign({ node: { members } }: { node: Node }) {
    const label = text(members["label"]);
    if (members["source"] !== "emoji") return label === "" ? null : <span class="badge">{label}</span>;
    return (
        <span class="ui-emoji" {...(label === "" ? { "aria-hidden": true } : { role: "img", "aria-label": label })}>
            {text(members["value"])}
        </span>
    );
}

function Pressed({ node: { members, id }, onAction }: { node: Node; onAction: Props["onAction"] }) {
    const action = readAction(members["action"]);
    const label = text(members["label"]);
    const kind = KINDS[oneOf(members["style"], ["primary", "secondary", "ghost", "danger"]) ?? "secondary"];
    if (action?.type === "url" && members["disabled"] !== true) {
        return (
            <a class={`button ${kind}`} href={action.url} target="_blank" rel="noopener noreferrer" data-node={id}>
                {label}
            </a>
        );
    }
    if (action?.type === "copy") return <CopyWords label={label} words={action.text} />;
    return (
        <Button
            kind={kind}
            disabled={members["disabled"] === true || action === null || onAction === undefined}
            title={action === null ? undefined : told(action)}
            data-node={id}
            onClick={() => action !== null && onAction?.(action)}
        >
            {label}
        </Button>
    );
}

function CopyWords({ label, words }: { label: string; words: string }) {
    return (
        <span class="ui-copy">
            {label}
            <CopyButton text={words} label={t("action.copy")} />
        </span>
    );
}

/** What an action would do, in a word and its own terms. */
export function told(action: Action): string {
    switch (action.type) {
        case "navigation":
            return action.path;
        case "url":
            return action.url;
        case "event":
            return action.name;
        case "tool":
            return `${action.tool} ${JSON.stringify(action.args)}`;
        case "copy":
            return action.text;
        case "payload":
            return JSON.stringify(action.payload);
    }
}

/** Pictures of other servers are not fetched: that would tell them who reads this. */
function Picture({ node: { members, id } }: { node: Node }) {
    const { url, alt } = members;
    const size = (value: unknown) => (typeof value === "number" && value > 0 ? value : undefined);
    if (isInlinePicture(url)) {
        return (
            <img
                class="ui-image"
                src={url}
                alt={text(alt)}
                width={size(members["width"])}
                height={size(members["height"])}
                data-node={id}
            />
        );
    }
    if (!isLink(url)) return text(alt) === "" ? null : <span class="soft">{text(alt)}</span>;
    return (
        <a class="ui-elsewhere" href={url} target="_blank" rel="noopener noreferrer" data-node={id}>
            {text(alt) || t("cards.picture")} <span class="soft small">{new URL(url).host}</span>
        </a>
    );
}

function Pairs({ node: { members, id } }: { node: Node }) {
    const items = Array.isArray(members["items"]) ? (members["items"] as unknown[]).filter(isObject) : [];
    return (
        <dl class="ui-kv" data-node={id}>
            {items.map((item, index) => (
                <div key={index}>
                    <dt>{text(item["label"])}</dt>
                    <dd>
                        {text(item["value"])}
                        {item["copyable"] === true && <CopyButton text={text(item["value"])} />}
                    </dd>
                </div>
            ))}
        </dl>
    );
}
