/** Lists whose pages end with the name of the item behind which the next page begins. */

const PAGE = 100;

/** Loads the first pages of a list, and says whether there is nothing more. */
export async function loadPages<Item>(
    load: (query: { limit: number; after: string | undefined }) => Promise<readonly Item[]>,
    nameOf: (item: Item) => string,
    pages: number,
): Promise<{ items: readonly Item[]; isComplete: boolean }> {
    const items: Item[] = [];
    while (items.length < pages * PAGE) {
        const last = items.at(-1);
        const page = await load({ limit: PAGE, after: last === undefined ? undefined : nameOf(last) });
        items.push(...page);
        if (page.length < PAGE) return { items, isComplete: true };
    }
    return { items, isComplete: false };
}
