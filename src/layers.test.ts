import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, relative, sep } from 'node:path'
import { expect, test } from 'vitest'
import { layers } from '../oxlint.config.ts'
import { page, tableRows } from '../test/support/pages.ts'

const root = import.meta.dirname
const relativeImport = /\b(?:from|import)\s*\(?\s*'(\.[^']+)'/g

/** One file that names another. Both are paths from `src`. */
interface Import {
  readonly file: string
  readonly imported: string
}

// Tests may look anywhere.
const imports = globSync('**/*.ts', { cwd: root })
  .filter((file) => !file.endsWith('.test.ts'))
  .flatMap(importsOf)

function importsOf(file: string): Import[] {
  return Array.from(readFileSync(join(root, file), 'utf8').matchAll(relativeImport), ([, path = '']) => ({
    file,
    imported: join(dirname(file), path),
  }))
}

/** The folder of `src` that a file belongs to; none of what stands in `src` itself. */
function layerOf(path: string): string | undefined {
  const [layer, ...rest] = path.split(sep)
  return rest.length === 0 ? undefined : layer
}

function isWithin(folder: string, path: string): boolean {
  return !relative(folder, path).startsWith('..')
}

function isFromAboveOrOwn({ file, imported }: Import): boolean {
  const [layer, other] = [layerOf(file), layerOf(imported)]
  return layer === undefined || other === undefined || layers.indexOf(other) <= layers.indexOf(layer)
}

function isThroughIndex({ file, imported }: Import): boolean {
  const other = layerOf(imported)
  return other === undefined || other === layerOf(file) || imported === join(other, 'index.ts')
}

function isIndexAround({ file, imported }: Import): boolean {
  return basename(imported) === 'index.ts' && isWithin(dirname(imported), file)
}

function isPrivateElsewhere({ file, imported }: Import): boolean {
  return basename(imported).startsWith('_') && !isWithin(dirname(imported), file)
}

test('every folder is a layer with a place in the order', () => {
  const folders = readdirSync(root, { withFileTypes: true }).filter((each) => each.isDirectory())
  expect(layers.toSorted()).toEqual(folders.map(({ name }) => name).toSorted())
  // What finds imports finds them.
  expect(imports.length).toBeGreaterThan(1000)
})

test('docs/architecture.md lists the layers in the order that lint enforces', async () => {
  const read = tableRows(await page('docs/architecture.md'), 'Layers').map(([layer]) => layer)
  expect(read).toEqual(layers)
})

test('a layer imports only from itself and the layers above it, types included', () => {
  expect(imports.filter((each) => !isFromAboveOrOwn(each))).toEqual([])
})

test('a layer is imported through its index only', () => {
  expect(imports.filter((each) => !isThroughIndex(each))).toEqual([])
})

test('a folder does not import its own index', () => {
  expect(imports.filter(isIndexAround)).toEqual([])
})

test('a file that begins with an underscore is imported only from its own folder', () => {
  expect(imports.filter(isPrivateElsewhere)).toEqual([])
})

const loadedImport = /^(?:import|export) (?!type )[^']*?from '(\.[^']+)'/gm

/** The layers that are loaded with a file of `cli`: those that it imports, itself or through other files of `cli`, as values. */
function layersLoadedWith(file: string): Set<string> {
  const loaded = new Set<string>()
  const seen = new Set<string>([file])
  for (const each of seen) {
    for (const [, path = ''] of readFileSync(join(root, each), 'utf8').matchAll(loadedImport)) {
      const imported = join(dirname(each), path)
      const layer = layerOf(imported) ?? ''
      // A template of an environment has imports, too.
      if (!existsSync(join(root, imported))) continue
      if (layer === 'cli') seen.add(imported)
      else loaded.add(layer)
    }
  }
  return loaded
}

test.each(globSync('cli/commands/*/*-command.ts', { cwd: root }))(
  'the help of a command loads neither a database nor an HTTP client: %s',
  (file) => {
    expect(layersLoadedWith(file).difference(new Set(['errors', 'kit', 'schema']))).toEqual(new Set())
  },
)
