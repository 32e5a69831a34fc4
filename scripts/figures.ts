import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, sep } from 'node:path'
import process from 'node:process'

/** Prints how large the source tree is and how it hangs together. Fails if a bound is broken. `--json` for programs. */

const root = join(import.meta.dirname, '..')
const folders = ['src', 'test', 'bench', 'scripts']
/** One story for each way in which clients of a gateway meet it: they belong together. */
const largeFolders: ReadonlySet<string> = new Set([join('test', 'gateway')])

interface Figure {
  readonly name: string
  readonly value: number
  readonly min?: number
  readonly max: number
  /** What the value is of, or where the bound is broken. */
  readonly where?: readonly string[]
}

const all = folders.flatMap((folder) => globSync(`${folder}/**/*`, { cwd: root, withFileTypes: true }))
const files = all.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name))
const paths = files.map((file) => file.slice(root.length + 1)).toSorted()
const isTest = (path: string): boolean => path.endsWith('.test.ts')
const sources = paths.filter((path) => path.startsWith(`src${sep}`) && path.endsWith('.ts') && !isTest(path))
const texts = new Map(sources.map((path) => [path, readFileSync(join(root, path), 'utf8')]))

const figures = [...sizes(), largestFolder(), underscored(), pastIndex(), cycles()]
const broken = figures.filter((figure) => !holds(figure))
process.stdout.write(process.argv.includes('--json') ? `${JSON.stringify(figures)}\n` : table(figures))
process.exitCode = broken.length === 0 ? 0 : 1

function holds({ value, min = 0, max }: Figure): boolean {
  return value >= min && value <= max
}

function sizes(): Figure[] {
  const lines = Array.from(texts, ([path, text]) => ({ path, count: text.split('\n').length - 1 }))
  const bySize = lines.toSorted((one, other) => one.count - other.count)
  const largest = bySize.at(-1)
  return [
    { name: 'source files', value: sources.length, max: 600 },
    { name: 'source lines', value: lines.reduce((sum, { count }) => sum + count, 0), max: 86_400 },
    { name: 'median file', value: bySize[Math.floor(bySize.length / 2)]?.count ?? 0, min: 80, max: 160 },
    { name: 'largest file', value: largest?.count ?? 0, max: 450, where: largest ? [largest.path] : [] },
  ]
}

/** The folder with the most files directly in it, tests included. */
function largestFolder(): Figure {
  const byFolder = Map.groupBy(paths, (path) => dirname(path))
  const counted = Array.from(byFolder, ([folder, inside]) => ({ folder, count: inside.length }))
    .filter(({ folder }) => !largeFolders.has(folder))
    .toSorted((one, other) => other.count - one.count)
  const tooLarge = counted.filter(({ count }) => count > 20)
  const named = (tooLarge.length > 0 ? tooLarge : counted.slice(0, 1)).map(({ folder, count }) => `${folder} ${count}`)
  return { name: 'largest folder', value: counted[0]?.count ?? 0, max: 20, where: named }
}

function underscored(): Figure {
  const found = paths.filter((path) => path.split(sep).some((part) => part.startsWith('_')))
  return { name: 'names with _', value: found.length, max: 0, where: found }
}

/** The files that a source names in its imports, types included; those that it loads later (`import()`) only if asked for. */
function importsOf(path: string, options: { readonly withLazy: boolean }): string[] {
  const pattern = options.withLazy ? /\b(?:from|import)\s*\(?\s*'(\.[^']+)'/g : /\b(?:from|import)\s+'(\.[^']+)'/g
  return Array.from(texts.get(path)?.matchAll(pattern) ?? [], ([, name = '']) => join(dirname(path), name)).filter(
    (imported) => texts.has(imported),
  )
}

/** Imports from outside of a folder with an `index.ts` that name another file of it. */
function pastIndex(): Figure {
  const found = sources.flatMap((path) =>
    importsOf(path, { withLazy: true })
      .filter((imported) => {
        const wall = outermostWall(path, imported)
        return wall !== undefined && imported !== join(wall, 'index.ts')
      })
      .map((imported) => `${path} -> ${imported}`),
  )
  return { name: 'imports past an index', value: found.length, max: 0, where: found }
}

/** The outermost folder around the imported file, and not around the one that imports it, that has an `index.ts`. */
function outermostWall(path: string, imported: string): string | undefined {
  const steps = dirname(imported).split(sep)
  return steps
    .map((_, index) => steps.slice(0, index + 1).join(sep))
    .find((folder) => !path.startsWith(folder + sep) && existsSync(join(root, folder, 'index.ts')))
}

/** Groups of files that import each other: Tarjan's strongly connected components. */
function cycles(): Figure {
  const found: string[] = []
  const order = new Map<string, number>()
  const lowest = new Map<string, number>()
  const stack: string[] = []
  const visit = (path: string): void => {
    order.set(path, order.size)
    lowest.set(path, order.size - 1)
    stack.push(path)
    for (const imported of importsOf(path, { withLazy: false })) {
      if (!order.has(imported)) visit(imported)
      if (stack.includes(imported)) lowest.set(path, Math.min(lowest.get(path) ?? 0, lowest.get(imported) ?? 0))
    }
    if (lowest.get(path) !== order.get(path)) return
    const component = stack.splice(stack.lastIndexOf(path))
    if (component.length > 1) found.push(component.join(' <-> '))
  }
  for (const path of sources) if (!order.has(path)) visit(path)
  return { name: 'import cycles', value: found.length, max: 0, where: found }
}

function table(shown: readonly Figure[]): string {
  const lines = shown.flatMap((figure) => {
    const { name, value, min, max, where = [] } = figure
    const bound = min === undefined ? `at most ${max}` : `${min} to ${max}`
    const isBroken = !holds(figure)
    const [first = ''] = where
    const note = where.length === 1 || !isBroken ? first : ''
    const line = `${isBroken ? 'x' : ' '} ${name.padEnd(22)} ${String(value).padStart(7)}   ${bound.padEnd(14)} ${note}`
    const more = where.length > 10 ? [`    … and ${where.length - 10} more: see --json`] : []
    return [
      line.trimEnd(),
      ...(isBroken && where.length > 1 ? where.slice(0, 10).map((each) => `    ${each}`) : []),
      ...more,
    ]
  })
  return `${lines.join('\n')}\n`
}
