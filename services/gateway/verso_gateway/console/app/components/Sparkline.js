import { jsx as _jsx, jsxs as _jsxs } from "preact/jsx-runtime";
export function Sparkline({ label, values, width = 120, height = 24 }) {
    const most = Math.max(1, ...values);
    const step = width / Math.max(1, values.length);
    const bar = Math.max(1, step - (step > 3 ? 1 : 0));
    return (_jsxs("svg", { class: "sparkline", role: "img", "aria-label": label, width: width, height: height, viewBox: `0 0 ${width} ${height}`, children: [_jsx("line", { class: "sparkline-base", x1: "0", x2: width, y1: height - 0.5, y2: height - 0.5 }), values.map((value, index) => {
                if (value === 0)
                    return null;
                // A single line among thousands still has a bar that can be seen.
                const tall = Math.max(2, (value / most) * (height - 2));
                return _jsx("rect", { x: index * step, y: height - tall, width: bar, height: tall }, index);
            })] }));
}
