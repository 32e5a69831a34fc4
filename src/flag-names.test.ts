import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'

const root = import.meta.dirname
/** A flag in a sentence: `choose another name with --run`, not `'--port'`, which is an argument. */
const inSentence = /[a-z;,] (--[a-z][\w.-]*.{0,60})|['`"](--[a-z][\w.-]* .{0,60})/g
/** What it is called in the library follows: `--run <name> (run.name)`. */
const named = /^--[a-z][^;,.:)]*(?:\.[^;,.:)]*)* \(/

// Whoever calls `evaluate()` has no flags: what only names those tells them nothing.
test('messages of the library that mention a flag also name its option', () => {
  const files = globSync('**/*.ts', { cwd: root, exclude: ['cli/**', '**/*.test.ts'] })
  expect(files.length).toBeGreaterThan(100)
  const found = files.flatMap((file) => {
    const lines = readFileSync(join(root, file), 'utf8').split('\n')
    const said = lines.filter((line) => !/^\s*(?:\/\/|\/?\*)/.test(line) && !line.includes('`node --'))
    return said.flatMap((line) =>
      Array.from(line.matchAll(inSentence), ([, within, first]) => within ?? first ?? '')
        .filter((text) => !named.test(text))
        .map((text) => `${file}: ${text}`),
    )
  })
  expect(found).toEqual([])
})
