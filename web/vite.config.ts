import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

const OUTPUT = "../src/dragoman/console";
const COMPRESSIBLE = /\.(js|css|html|svg)$/;
const SMALLEST = 1024;

/** Compresses files at build time, so that the server only has to send them. */
function precompress(): Plugin {
    let folder = "";
    return {
        name: "precompress",
        apply: "build",
        configResolved(config) {
            folder = config.build.outDir;
        },
        closeBundle() {
            for (const each of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
                if (!COMPRESSIBLE.test(each)) continue;
                const path = join(folder, each);
                const content = readFileSync(path);
                if (content.length < SMALLEST) continue;
                writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
                const best = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };
                writeFileSync(`${path}.br`, brotliCompressSync(content, best));
            }
        },
    };
}

export default defineConfig({
    base: "./",
    build: {
        outDir: OUTPUT,
        emptyOutDir: true,
        target: "es2022",
        modulePreload: { polyfill: false },
        assetsInlineLimit: 0,
        // Compressing takes longer than building; a warning about it would be the longest output of `make run`.
        rolldownOptions: { checks: { pluginTimings: false } },
    },
    oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
    plugins: [precompress()],
    server: {
        // `npm run dev` next to a server on the default port.
        proxy: Object.fromEntries(
            ["/aap", "/api", "/ag-ui", "/process", "/stop", "/sessions", "/readyz", "/healthz", "/metrics"]
                .map((path) => [path, "http://127.0.0.1:8000"])
                .concat([["/socket.io", "http://127.0.0.1:8000"]]),
        ),
    },
});
