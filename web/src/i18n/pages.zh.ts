import type { pagesEn } from "./pages.en";

/** 协议透镜与服务器各页面的中文文案。 */
export const pagesZh: Record<keyof typeof pagesEn, string> = {};
