/** What the lens and the pages about the server say in English. */
export const pagesEn = {} as const satisfies Record<string, string>;
