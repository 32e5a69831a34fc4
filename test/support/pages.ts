import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'

export const root = join(import.meta.dirname, '../..')

const elsewhere = new Set(['node_modules', 'runs', 'dist', 'coverage', '.git'])

/** A page of the documentation, by its path from the root. */
interface Page {
  readonly path: string
  readonly text: string
}

/** Every Markdown file of the repository. */
export async function allPages(folder = ''): Promise<Page[]> {
  const pages: Page[] = []
  for (const entry of await readdir(join(root, folder), { withFileTypes: true })) {
    const path = join(folder, entry.name)
    if (entry.isDirectory() && !elsewhere.has(entry.name)) pages.push(...(await allPages(path)))
    else if (entry.name.endsWith('.md')) pages.push(await page(path))
  }
  return pages
}

export async function page(path: string): Promise<Page> {
  return { path, text: await readFile(join(root, path), 'utf8') }
}

/** The cells of every row of the tables below a heading, without their header. Backticks are left out. */
export function tableRows({ path, text }: Page, heading: string): string[][] {
  const start = text.indexOf(`\n## ${heading}\n`)
  if (start === -1) throw new Error(`${path} has no section "${heading}"`)
  const end = text.indexOf('\n## ', start + 1)
  const lines = text.slice(start, end === -1 ? undefined : end).split('\n')
  const isRule = (line: string | undefined): boolean => /^\|[-|]+\|$/.test(line ?? '')
  return lines
    .filter((line, index) => line.startsWith('|') && !isRule(line) && !isRule(lines[index + 1]))
    .map((line) =>
      line
        .slice(1, -1)
        .split('|')
        .map((cell) => cell.replaceAll('`', '').trim()),
    )
}

export interface MarkedBlock {
  /** What follows the mark: the name of a file, perhaps nothing. */
  readonly argument: string
  readonly language: string
  readonly code: string
}

/** The code blocks of a page that stand right below a comment `<!-- mark: argument -->`. */
export function markedBlocks(text: string, mark: string): MarkedBlock[] {
  const pattern = new RegExp(`<!-- ${mark}(?:: ([^>]*?))? -->\\n\`\`\`(\\w*)\\n([\\s\\S]*?)^\`\`\`$`, 'gm')
  return Array.from(text.matchAll(pattern), ([, argument = '', language = '', code = '']) => ({
    argument,
    language,
    code,
  }))
}
