import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { LongestFirst } from './test/longest-first.ts'

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url))

export default defineConfig({
  resolve: {
    alias: [
      { find: /^millrace$/, replacement: source('./src/index.ts') },
      { find: /^millrace\/testing$/, replacement: source('./src/testing/index.ts') },
    ],
  },
  test: {
    // Only for what hangs: on a machine that is busy with other things a test takes ten times as long as alone.
    testTimeout: 240_000,
    hookTimeout: 240_000,
    // Tests wait more than they compute, so three files at a time, on two cores, too.
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    // V8 now and then crashes when it frees WebAssembly code that threads share: see bin/millrace.js.
    execArgv: ['--no-wasm-code-gc'],
    expect: { poll: { timeout: 60_000 } },
    projects: [
      // They leave nothing behind, and most take less time than a process needs to start.
      { extends: true, test: { name: 'units', include: ['src/**/*.test.ts'], isolate: false } },
      { extends: true, test: { name: 'stories', include: ['test/**/*.test.ts'] } },
    ],
  },
})
