// What the example uses of @assistant-ui/react, without its components, which need a browser.
export { ExportedMessageRepository } from "@assistant-ui/core";
export { AssistantRuntimeProvider } from "@assistant-ui/core/react";
