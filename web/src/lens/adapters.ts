/** The protocols of the lens. */
import { a2a } from "./a2a";
import { aap } from "./aap";
import type { HttpAdapter, RunAdapter } from "./adapter";
import { agentscope } from "./agentscope";
import { agui } from "./agui";
import { aisdk } from "./aisdk";
import { blade } from "./blade";
import { perProtocol, type Protocol } from "./frames";
import { openai } from "./openai";

/** Those whose streams are those of one run. */
export const RUN_ADAPTERS = { aap, agentscope, openai, "ai-sdk": aisdk, a2a } satisfies Partial<
    Record<Protocol, RunAdapter>
>;
export type RunProtocol = keyof typeof RUN_ADAPTERS;
export const isRunProtocol = (protocol: Protocol): protocol is RunProtocol => protocol in RUN_ADAPTERS;

/** Those without a socket. */
export const HTTP_ADAPTERS = { ...RUN_ADAPTERS, "ag-ui": agui } satisfies Record<
    Exclude<Protocol, "blade">,
    HttpAdapter
>;

export const ADAPTERS = { ...HTTP_ADAPTERS, blade };

export const NAMES: Readonly<Record<Protocol, string>> = perProtocol((each) => ADAPTERS[each].name);
