/** The console's icons: one stroke on a 24-unit grid, in the color of the surrounding text. */

const PATHS = {
    attach: "M20 11.5 12.2 19a5 5 0 0 1-7-7L13 4.4a3.3 3.3 0 0 1 4.7 4.7l-7.8 7.5a1.7 1.7 0 0 1-2.3-2.4L14.8 7",
    back: "M19 12H5m6-6-6 6 6 6",
    check: "m5 12.5 4.5 4.5L19 7",
    chevron: "m9 6 6 6-6 6",
    chat: "M4 6.5A2.5 2.5 0 0 1 6.5 4h11A2.5 2.5 0 0 1 20 6.5v7a2.5 2.5 0 0 1-2.5 2.5H11l-5 4v-4a2 2 0 0 1-2-2z",
    clock: "M12 7v5l3.5 2M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0",
    close: "M6 6l12 12M18 6 6 18",
    copy: "M9 9V5.5A1.5 1.5 0 0 1 10.5 4h8A1.5 1.5 0 0 1 20 5.5v8a1.5 1.5 0 0 1-1.5 1.5H15M5.5 9h8A1.5 1.5 0 0 1 15 10.5v8a1.5 1.5 0 0 1-1.5 1.5h-8A1.5 1.5 0 0 1 4 18.5v-8A1.5 1.5 0 0 1 5.5 9",
    down: "M12 5v14m-6-6 6 6 6-6",
    edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
    file: "M6 3h8l5 5v12a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1V4a1 1 0 0 1 1-1m8 0v5h5",
    fork: "M6 4v9a3 3 0 0 0 3 3h9m-4-4 4 4-4 4",
    fold: "M4 12h16M12 3v5m-3-2 3 3 3-3M12 21v-5m-3 2 3-3 3 3",
    globe: "M3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0",
    help: "M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18M9.5 9.5a2.5 2.5 0 1 1 3.500 2.3c-.7.3-1 .8-1 1.700M12 16.500h.01",
    health: "M3 12h4l2.5-6 4 12 2.5-6h5",
    key: "M8 16a4 4 0 1 1 0-8 4 4 0 0 1 0 8m4-4h9m-3 0v3m3-3v2",
    leave: "M14 5V4H5v16h9v-1M10 12h11m-4-4 4 4-4 4",
    lens: "M10.5 17a6.5 6.5 0 1 1 0-13 6.5 6.5 0 0 1 0 13m4.8-1.7L20.5 20M7.5 9h6m-6 3h4",
    list: "M9 6h11M9 12h11M9 18h11M4.5 6h.01M4.5 12h.01M4.5 18h.01",
    memory: "M7 4h10a1 1 0 0 1 1 1v15l-6-4-6 4V5a1 1 0 0 1 1-1",
    menu: "M4 7h16M4 12h16M4 17h16",
    moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5",
    more: "M6 12a1 1 0 1 1-2 0 1 1 0 0 1 2 0m7 0a1 1 0 1 1-2 0 1 1 0 0 1 2 0m7 0a1 1 0 1 1-2 0 1 1 0 0 1 2 0",
    picture:
        "M5 5h14a1 1 0 0 1 1 1v12a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1m-1 11 4.5-4.5 4 4 3-3L20 16M9 9.5h.01",
    pin: "M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v6",
    plus: "M12 5v14M5 12h14",
    retry: "M4 5v5h5M4.6 10A8 8 0 1 1 4 13",
    search: "M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14m5-2 4.5 4.5",
    send: "M12 19V5m-6 6 6-6 6 6",
    share: "M12 15V4m-4 4 4-4 4 4M6 11H5v9h14v-9h-1",
    stop: "M7.5 6h9A1.5 1.5 0 0 1 18 7.5v9a1.5 1.5 0 0 1-1.5 1.5h-9A1.5 1.5 0 0 1 6 16.5v-9A1.5 1.5 0 0 1 7.5 6",
    sun: "M12 16a4 4 0 1 1 0-8 4 4 0 0 1 0 8m0-13v2m0 14v2M3 12h2m14 0h2M5.6 5.6 7 7m10 10 1.4 1.4m0-12.8L17 7M7 17l-1.4 1.4",
    theme: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
    timeline: "M4 5h7M8 10h9M6 15h6M13 20h7",
    thought: "M9 18h6m-5 3h4M8 15c-1.5-1-3-2.8-3-5.5a7 7 0 0 1 14 0c0 2.7-1.5 4.5-3 5.500z",
    tool: "M14.5 6.500a4 4 0 0 1 5-2l-3 3 .5 2 2 .5 3-3a4 4 0 0 1-5.5 5L9 19.500a2.1 2.1 0 0 1-3-3L14 9a4 4 0 0 1 .5-2.5",
    trash: "M4 7h16M9 7V4h6v3m-8.5 0 1 13h9l1-13M10 11v5m4-5v5",
    warning: "M12 4 2.5 20h19zM12 10v4m0 3h.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
    return (
        <svg
            class="icon"
            viewBox="0 0 24 24"
            fill="none"
            stroke="currentColor"
            stroke-width="1.75"
            stroke-linecap="round"
            stroke-linejoin="round"
            aria-hidden="true"
        >
            <path d={PATHS[name]} />
        </svg>
    );
}
