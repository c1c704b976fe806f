/**
 * Renders Markdown as elements. No HTML is generated: the text is parsed into tokens, and each known token becomes an
 * element, so nothing needs sanitizing. HTML in the text is shown as text, images from other servers are not fetched, and
 * links may lead only to web pages and mail addresses.
 */
import { Marked, type Token, type Tokens } from "marked";
import { Component, type ComponentChildren } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { Code } from "./Code";
import { Formula } from "./Formula";
import { FORMULAS, type FormulaToken } from "./mathSyntax";
import { Picture as OpenPicture } from "./Picture";
import { t } from "../i18n";

const marked = new Marked({ extensions: FORMULAS });

const LINK = /^(https?:|mailto:)/i;
const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,/i;
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
/** While an answer grows, this many tokens at its end may still change their type. */
const OPEN_TOKENS = 2;

interface Props {
    text: string;
    isGrowing?: boolean;
}

export function Markdown({ text, isGrowing = false }: Props) {
    const reader = useRef<Reader>(null);
    reader.current ??= new Reader();
    const tokens = useMemo(() => reader.current?.read(text, isGrowing) ?? [], [text, isGrowing]);
    return (
        <div class="markdown">
            {tokens.map((token, index) => (
                <Block key={index} token={token} isGrowing={isGrowing && index >= tokens.length - OPEN_TOKENS} />
            ))}
        </div>
    );
}

/** Parses growing text without parsing its beginning again. */
class Reader {
    private tokens: Token[] = [];

    read(source: string, isGrowing: boolean): Token[] {
        const text = source.replace(/\r\n?/g, "\n"); // as in the tokens
        let settled = isGrowing ? this.tokens.slice(0, -OPEN_TOKENS) : [];
        let beginning = settled.map((token) => token.raw).join("");
        if (!text.startsWith(beginning)) [settled, beginning] = [[], ""];
        this.tokens = [...settled, ...marked.lexer(text.slice(beginning.length))];
        return this.tokens;
    }
}

/** A token that is rendered again only when its source changes. */
class Block extends Component<{ token: Token; isGrowing: boolean }> {
    override shouldComponentUpdate(next: { token: Token }): boolean {
        return next.token !== this.props.token && next.token.raw !== this.props.token.raw;
    }

    override render() {
        const { token, isGrowing } = this.props;
        return token.type === "code" ? (
            <Code code={token as Tokens.Code} isGrowing={isGrowing} />
        ) : (
            drawn(token, "auto")
        );
    }
}

const inside = (tokens: Token[] | undefined): ComponentChildren => (tokens ?? []).map((token) => drawn(token));

/** `dir`: of the outermost elements, which those inside inherit. The browser would not look into elements that have their own. */
function drawn(token: Token, dir?: "auto"): ComponentChildren {
    switch (token.type) {
        case "heading": {
            const Level = `h${Math.min(6, (token as Tokens.Heading).depth + 2)}` as "h3";
            return <Level dir={dir}>{inside(token.tokens)}</Level>;
        }
        case "paragraph":
            return <p dir={dir}>{inside(token.tokens)}</p>;
        case "text":
            return token.tokens ? inside(token.tokens) : decoded((token as Tokens.Text).text);
        case "strong":
            return <strong>{inside(token.tokens)}</strong>;
        case "em":
            return <em>{inside(token.tokens)}</em>;
        case "del":
            return <del>{inside(token.tokens)}</del>;
        case "codespan":
            return <code>{(token as Tokens.Codespan).text}</code>;
        case "br":
            return <br />;
        case "hr":
            return <hr />;
        case "blockquote":
            return <blockquote dir={dir}>{inside(token.tokens)}</blockquote>;
        case "code":
            return <Code code={token as Tokens.Code} isGrowing={false} />;
        case "list":
            return <List list={token as Tokens.List} dir={dir} />;
        case "table":
            return <Table table={token as Tokens.Table} dir={dir} />;
        case "link":
            return <Link link={token as Tokens.Link} />;
        case "image":
            return <Picture image={token as Tokens.Image} />;
        case "html":
            return (token as Tokens.HTML).block ? <p dir={dir}>{token.raw.trim()}</p> : token.raw; // HTML as text
        case "escape":
            return (token as Tokens.Escape).text;
        case "checkbox":
            return <input type="checkbox" checked={(token as { checked?: boolean }).checked ?? false} disabled />;
        case "formula":
            return <Formula formula={token as FormulaToken} />;
        case "space":
        case "def":
            return null;
        default:
            return token.raw; // unknown tokens as source text
    }
}

function List({ list, dir }: { list: Tokens.List; dir: "auto" | undefined }) {
    const items = list.items.map((item, index) => (
        <li key={index} class={item.task ? "task" : undefined}>
            {inside(item.tokens)}
        </li>
    ));
    if (!list.ordered) return <ul dir={dir}>{items}</ul>;
    return (
        <ol dir={dir} start={Number(list.start) || 1}>
            {items}
        </ol>
    );
}

function Table({ table, dir }: { table: Tokens.Table; dir: "auto" | undefined }) {
    return (
        <div class="table" tabIndex={0}>
            <table dir={dir}>
                <thead>
                    <tr>
                        {table.header.map((cell, index) => (
                            <th key={index} scope="col" style={{ textAlign: cell.align ?? "start" }}>
                                {inside(cell.tokens)}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {table.rows.map((row, at) => (
                        <tr key={at}>
                            {row.map((cell, index) => (
                                <td key={index} style={{ textAlign: cell.align ?? "start" }}>
                                    {inside(cell.tokens)}
                                </td>
                            ))}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

function Link({ link }: { link: Tokens.Link }) {
    if (!LINK.test(link.href.trim())) return <span>{inside(link.tokens)}</span>;
    return (
        <a href={link.href} title={link.title || link.href} target="_blank" rel="noopener noreferrer nofollow">
            {inside(link.tokens)}
        </a>
    );
}

function Picture({ image }: { image: Tokens.Image }) {
    const name = image.text || t("chat.picture");
    if (PICTURE.test(image.href)) return <OpenPicture url={image.href} name={name} />;
    return (
        <span class="picture-elsewhere" title={image.href}>
            {LINK.test(image.href) ? (
                <a href={image.href} target="_blank" rel="noopener noreferrer nofollow">
                    {t("chat.picture-elsewhere", { name })}
                </a>
            ) : (
                name
            )}
        </span>
    );
}

/** Decodes the entities, such as `&copy;`, that tokens contain in source form. */
function decoded(text: string): string {
    return text.replace(
        /&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w+));/gi,
        (whole, decimal?: string, hex?: string, name?: string) => {
            if (name !== undefined) return ENTITIES[name.toLowerCase()] ?? whole;
            const code = decimal !== undefined ? Number(decimal) : parseInt(hex ?? "", 16);
            return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
        },
    );
}
