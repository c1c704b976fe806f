/** Renders UI schema 2.0. Nothing in it makes a request or acts before the user presses a button. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { Markdown } from "../components/Markdown";
import { Button } from "../components/Button";
import { CopyButton } from "../components/CopyButton";
import { t } from "../i18n";
import { type Action, isInlinePicture, isLink, isObject, type Node, oneOf, readAction, readTree, text } from "./schema";
import "./cards.css";

interface Props {
    /** The `ui_schema`, or only its root node. */
    tree: unknown;
    /** Handles actions other than links and copying. Without it those buttons do nothing. */
    onAction?: (action: Action) => void;
}

export function UiSchema({ tree, onAction }: Props) {
    const read = useMemo(() => readTree(tree), [tree]);
    if (read === null) return null;
    return (
        <div class={`ui-schema ui-theme-${read.theme}`} lang={read.locale} data-status={read.status}>
            {render(read.root, onAction)}
        </div>
    );
}

function render(node: Node, onAction: Props["onAction"], key?: number): ComponentChildren {
    const { members } = node;
    const common = { key, "data-status": node.status, "data-node": node.id };
    const children = () => node.children.map((child, index) => render(child, onAction, index));
    switch (node.type) {
        case "stack": {
            const direction = oneOf(members["direction"], ["vertical", "horizontal"]) ?? "vertical";
            const align = oneOf(members["align"], ["start", "center", "end", "stretch"]) ?? "stretch";
            return (
                <div {...common} class={`ui-stack ui-${direction} ui-align-${align} ${layoutClasses(node)}`}>
                    {children()}
                </div>
            );
        }
        case "grid":
            return (
                <div {...common} class={`ui-grid ui-columns-${columns(members["columns"])} ${layoutClasses(node)}`}>
                    {children()}
                </div>
            );
        case "text":
            return <TextNode key={key} node={node} />;
        case "icon":
            return <IconNode key={key} node={node} />;
        case "badge":
            return (
                <span {...common} class={`badge ${TONES[node.status ?? "info"]}`}>
                    {text(members["label"])}
                </span>
            );
        case "button":
            return <ActionButton key={key} node={node} onAction={onAction} />;
        case "image":
            return <Picture key={key} node={node} />;
        case "kv":
            return <KeyValues key={key} node={node} />;
        case "divider":
            return <hr {...common} class="ui-divider" />;
        default:
            return text(members["content"]) || text(members["label"]) || null;
    }
}

const TONES = { info: "accent", success: "good", warning: "warning", error: "danger", pending: "" } as const;
const KINDS = { primary: "primary", secondary: "normal", ghost: "plain", danger: "danger" } as const;

function layoutClasses({ members }: Node): string {
    const gap = oneOf(members["gap"], ["none", "sm", "md", "lg"]) ?? "md";
    return `ui-gap-${gap}${members["appearance"] === "card" ? " card" : ""}`;
}

function columns(value: unknown): number {
    return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 12 ? value : 2;
}

function TextNode({ node }: { node: Node }) {
    const role = oneOf(node.members["role"], ["title", "subtitle", "body", "caption", "code"]) ?? "body";
    const content = text(node.members["content"]);
    const common = { class: `ui-text ui-${role}`, "data-status": node.status, "data-node": node.id };
    if (role === "code") {
        return (
            <pre {...common}>
                <code>{content}</code>
            </pre>
        );
    }
    if (node.members["format"] === "markdown") {
        return (
            <div {...common}>
                <Markdown text={content} />
            </div>
        );
    }
    return <p {...common}>{content}</p>;
}

function IconNode({ node: { members } }: { node: Node }) {
    const label = text(members["label"]);
    if (members["source"] !== "emoji") return label === "" ? null : <span class="badge">{label}</span>;
    return (
        <span class="ui-emoji" {...(label === "" ? { "aria-hidden": true } : { role: "img", "aria-label": label })}>
            {text(members["value"])}
        </span>
    );
}

function ActionButton({ node: { members, id }, onAction }: { node: Node; onAction: Props["onAction"] }) {
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
    if (action?.type === "copy") return <CopyText label={label} content={action.text} />;
    return (
        <Button
            kind={kind}
            disabled={members["disabled"] === true || action === null || onAction === undefined}
            title={action === null ? undefined : describe(action)}
            data-node={id}
            onClick={() => action !== null && onAction?.(action)}
        >
            {label}
        </Button>
    );
}

function CopyText({ label, content }: { label: string; content: string }) {
    return (
        <span class="ui-copy">
            {label}
            <CopyButton text={content} label={t("action.copy")} />
        </span>
    );
}

/** A one-line description of an action. */
export function describe(action: Action): string {
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

/** Images from other servers are not fetched: a request would reveal who is reading. */
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

function KeyValues({ node: { members, id } }: { node: Node }) {
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
