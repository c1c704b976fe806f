/** Moving the focus when what had it goes away. */

/** Whether the focus is nowhere, or in what goes away. Elsewhere the user has put it, and keys pressed next belong there. */
export const isFocusFree = (leaving: Element | null): boolean =>
    document.activeElement === document.body || leaving?.contains(document.activeElement) === true;
