/** The words as a command line, quoted so that a shell reads the same words back. */
export function shellQuote(words: readonly string[]): string {
  return words
    .map((word) => (/^[\w@%+=:,./~^-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`))
    .join(' ')
}
