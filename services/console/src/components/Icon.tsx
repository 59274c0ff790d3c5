/** Icons: strokes on a grid of 20, drawn in the colour of the text beside them. */

const PATHS = {
  search: "M9 15.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM13.8 13.8 18 18",
  document: "M5 2.5h6.5L15.5 6.5v11h-10.5zM11.5 2.5v4h4M7.5 10h5.5M7.5 13.5h5.5",
  logs: "M2.5 4.5h3M8 4.5h9.5M2.5 8.2h3M8 8.2h6M2.5 11.8h3M8 11.8h9.5M2.5 15.5h3M8 15.5h4.5",
  collections: "M10 2.5c4 0 7 1.1 7 2.6s-3 2.6-7 2.6-7-1.1-7-2.6 3-2.6 7-2.6ZM3 5.1v9.8c0 1.5 3 2.6 7 2.6s7-1.1 7-2.6V5.1M3 10c0 1.5 3 2.6 7 2.6s7-1.1 7-2.6",
  jobs: "M3 5h3.5v3.5H3zM3 11.5h3.5V15H3zM10 6.7h7.5M10 13.2h7.5",
  models: "M10 2.5 17 6.2v7.6L10 17.5 3 13.8V6.2zM3 6.2 10 10l7-3.8M10 10v7.5",
  map: "M4.5 13.5h.01M7 6.5h.01M10.5 10.5h.01M13.5 5h.01M15.5 12.5h.01M9 15.5h.01M2.5 2.5v15h15",
  health: "M2.5 10.5h3.7l2-5.5 3.4 10.5 2.2-5h3.7",
  sun: "M10 13.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM10 1.8v1.7M10 16.5v1.7M1.8 10h1.7M16.5 10h1.7M4.2 4.2l1.2 1.2M14.6 14.6l1.2 1.2M4.2 15.8l1.2-1.2M14.6 5.4l1.2-1.2",
  moon: "M16.8 12.2A7.2 7.2 0 0 1 7.8 3.2a7.2 7.2 0 1 0 9 9Z",
  system: "M2.5 3.5h15v10h-15zM7 17h6M10 13.5V17",
  menu: "M3 5.5h14M3 10h14M3 14.5h14",
  close: "M5 5l10 10M15 5 5 15",
  code: "M7 5.5 2.5 10 7 14.5M13 5.5l4.5 4.5-4.5 4.5",
  copy: "M7 7h9.5v9.5H7zM13 7V3.5H3.5V13H7",
  check: "M4 10.5 8.2 14.7 16 6",
  warning: "M10 3 18 16.8H2zM10 8.2v4M10 14.6h.01",
  info: "M10 17.5a7.5 7.5 0 1 0 0-15 7.5 7.5 0 0 0 0 15ZM10 9.2v4.3M10 6.4h.01",
  lock: "M5 9h10v8H5zM7 9V6.2a3 3 0 0 1 6 0V9",
  download: "M10 3v9.5M6 8.7l4 4 4-4M3.5 16.5h13",
  upload: "M10 13V3.5M6 7.3l4-4 4 4M3.5 16.5h13",
  plus: "M10 4v12M4 10h12",
  minus: "M4 10h12",
  trash: "M3.5 5.5h13M8 5.5v-2h4v2M5.2 5.5 6 17h8l.8-11.5M8.5 8.5v5.5M11.5 8.5v5.5",
  refresh: "M16.5 8A7 7 0 1 0 17 11.5M16.8 3.5V8h-4.5",
  filter: "M3 4.5h14l-5.5 6.5v5l-3 1.5v-6.5z",
  clock: "M10 17.5a7.5 7.5 0 1 0 0-15 7.5 7.5 0 0 0 0 15ZM10 5.8V10l3 2",
  right: "M7.5 4.5 13 10l-5.5 5.5",
  left: "M12.5 4.5 7 10l5.5 5.5",
  down: "M4.5 7.5 10 13l5.5-5.5",
  up: "M4.5 12.5 10 7l5.5 5.5",
  external: "M8 4.5H3.5v12h12V12M11.5 3.5h5v5M16.2 3.8 9 11",
  play: "M6 3.8 16 10 6 16.2z",
  pause: "M6.5 4v12M13.5 4v12",
  stop: "M5 5h10v10H5z",
  keyboard: "M2.5 5.5h15v9h-15zM5.5 8.3h.01M8.5 8.3h.01M11.5 8.3h.01M14.5 8.3h.01M6.5 11.7h7",
  user: "M10 10a3.3 3.3 0 1 0 0-6.6 3.3 3.3 0 0 0 0 6.6ZM3.5 17c.6-3.2 3.2-5 6.5-5s5.9 1.8 6.5 5",
  exact: "M3 10.5 6.2 13.7 11 7.5M9.5 13.2l.7.5L17 6",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
