import { globSync, readFileSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { expect, test } from 'vitest'

const root = import.meta.dirname
const relativeImport = /\b(?:from|import)\s*\(?\s*'(\.[^']+)'/g

/** The folder of `src` that a file belongs to; none of what stands in `src` itself. */
function layerOf(path: string): string | undefined {
  const [layer, ...rest] = relative(root, path).split(sep)
  return rest.length === 0 ? undefined : layer
}

/** What a file imports from another layer, past the index of that layer. */
function pastIndex(file: string): string[] {
  const layer = layerOf(file)
  const imported = Array.from(readFileSync(file, 'utf8').matchAll(relativeImport), ([, path = '']) =>
    join(dirname(file), path),
  )
  return imported.filter((path) => {
    const other = layerOf(path)
    return other !== undefined && other !== layer && path !== join(root, other, 'index.ts')
  })
}

// Their order is for lint, which goes by the text of an import and so cannot tell a layer from a folder of the same name.
test('a layer is imported through its index, and in no other way', () => {
  const files = globSync('**/*.ts', { cwd: root }).filter((file) => !/\.test\.ts$|_testing/.test(file))
  expect(files.length).toBeGreaterThan(500)
  const found = files.flatMap((file) => pastIndex(join(root, file)).map((path) => `${file}: ${relative(root, path)}`))
  expect(found).toEqual([])
})
