/** A command line that a shell reads back as these words. */
export function shellQuote(words: readonly string[]): string {
  return words
    .map((word) => (/^[\w@%+=:,./~^-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`))
    .join(' ')
}
