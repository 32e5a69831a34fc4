import { stripVTControlCharacters } from 'node:util'

/**
 * Makes text of a model, a tool or a file safe for a terminal: it must not move the cursor, change colours or set the
 * window's title. Line breaks and tabs stay.
 */
export function printable(text: string): string {
  return (
    stripVTControlCharacters(text)
      .replaceAll('\r\n', '\n')
      // oxlint-disable-next-line no-control-regex
      .replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '�')
  )
}

/** Makes text safe for a terminal, on one line, for a cell of a table. */
export function printableLine(text: string): string {
  return printable(text).replaceAll(/\s+/g, ' ').trim()
}
