import type { ComponentChildren, TargetedMouseEvent } from "preact";
import { Link } from "../router.js";
import { Icon, type IconName } from "./Icon.js";

interface Props {
  children?: ComponentChildren;
  /** `primary`: the one thing to do here; `quiet`: without a frame; `danger`: destroys something. */
  kind?: "primary" | "plain" | "quiet" | "danger";
  icon?: IconName | undefined;
  /** What it does, where the icon stands alone. */
  label?: string;
  /** An address within the console: the button is a link then. */
  to?: string;
  type?: "button" | "submit";
  small?: boolean;
  busy?: boolean;
  disabled?: boolean;
  /** Of a button that stays down. */
  pressed?: boolean;
  expanded?: boolean;
  title?: string;
  onClick?: (event: TargetedMouseEvent<HTMLElement>) => void;
}

export function Button(props: Props) {
  const { children, kind = "plain", icon, label, to, type = "button", small, busy, pressed, expanded } = props;
  const alone = children === undefined || children === null;
  const classes = ["button", kind, small ? "small" : "", alone ? "icon-only" : ""].filter(Boolean).join(" ");
  const inner = (
    <>
      {busy ? <span class="spinner" aria-hidden="true" /> : icon && <Icon name={icon} size={small ? 15 : 17} />}
      {children}
    </>
  );
  if (to !== undefined) {
    return (
      <Link to={to} class={classes} aria-label={label} title={props.title ?? label}>
        {inner}
      </Link>
    );
  }
  return (
    <button
      type={type}
      class={classes}
      aria-label={label}
      title={props.title ?? label}
      aria-pressed={pressed}
      aria-expanded={expanded}
      aria-busy={busy || undefined}
      disabled={props.disabled || busy}
      onClick={props.onClick}
    >
      {inner}
    </button>
  );
}
