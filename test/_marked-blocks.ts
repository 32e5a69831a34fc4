export interface MarkedBlock {
  /** What follows the mark: the name of a file, perhaps nothing. */
  readonly argument: string
  readonly language: string
  readonly code: string
}

/** The code blocks of a page that stand right below a comment `<!-- mark: argument -->`. */
export function markedBlocks(page: string, mark: string): MarkedBlock[] {
  const pattern = new RegExp(`<!-- ${mark}(?:: ([^>]*?))? -->\\n\`\`\`(\\w*)\\n([\\s\\S]*?)^\`\`\`$`, 'gm')
  return Array.from(page.matchAll(pattern), ([, argument = '', language = '', code = '']) => ({
    argument,
    language,
    code,
  }))
}
