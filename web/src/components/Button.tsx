import type { ButtonHTMLAttributes, ComponentChildren } from "preact";
import { Icon, type IconName } from "./Icon";

interface Look {
    kind?: "normal" | "primary" | "danger" | "plain";
    icon?: IconName;
    isSmall?: boolean;
}

type Props = Look & Omit<ButtonHTMLAttributes<HTMLButtonElement>, "icon"> & { children: ComponentChildren };
type IconProps = Look &
    Omit<ButtonHTMLAttributes<HTMLButtonElement>, "icon" | "label"> & {
        icon: IconName;
        /** The accessible name, also shown as a tooltip. */
        label: string;
        /** What it is for, among others with the same name. */
        about?: string | undefined;
    };

/** A button with a text. */
export function Button({ kind = "normal", icon, isSmall, children, type = "button", ...rest }: Props) {
    return (
        <button {...rest} type={type} class={classes(kind, isSmall, false)}>
            {icon && <Icon name={icon} />}
            {children}
        </button>
    );
}

/** A button with an icon only. */
export function IconButton({ kind = "plain", icon, isSmall, label, about, type = "button", ...rest }: IconProps) {
    return (
        <button
            {...rest}
            type={type}
            aria-label={label}
            aria-description={about}
            title={label}
            class={classes(kind, isSmall, true)}
        >
            <Icon name={icon} />
        </button>
    );
}

function classes(kind: string, isSmall: boolean | undefined, isIcon: boolean): string {
    return ["button", kind, isSmall && "small", isIcon && "icon-only"].filter(Boolean).join(" ");
}
