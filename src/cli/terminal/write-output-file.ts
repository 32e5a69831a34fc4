import { createWriteStream, type Stats } from 'node:fs'
import { access, constants, readlink, realpath, rename, rm, stat } from 'node:fs/promises'
import { dirname, isAbsolute, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { MillraceError } from '../../errors/index.ts'
import { peekFirst } from '../../kit/index.ts'
import { printableLine } from './text.ts'

/**
 * Writes a file piece by piece. It gets its name once it is whole, and replaces an existing file, as `-o` of other programs
 * does. Resolves to the name, with a note if the file held anything before.
 */
export async function writeOutputFile(
  chunks: AsyncIterable<string | Uint8Array>,
  { name, flag, cwd }: { readonly name: string; readonly flag: string; readonly cwd: string },
): Promise<string> {
  const file = resolve(cwd, name)
  try {
    // If the source fails before its first chunk, the file is left alone.
    await using checked = await peekFirst(chunks)
    const before = await statIfThere(file)
    // A device or a pipe is written to directly.
    if (before && !before.isFile()) await pipeline(checked, createWriteStream(file))
    else await replaceFile(checked, file, before)
    const over = before?.isFile() && before.size > 0 ? ', replacing its former content' : ''
    return `${printableLine(name)}${over}`
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // Errors of reading are reported by the reader.
    if (error instanceof MillraceError || code === 'ERR_SQLITE_ERROR') throw error
    if (code === 'ENOSPC')
      throw new MillraceError(
        'disk_full',
        `the disk is full, so ${file} cannot be written; free some space, then run the command again`,
        { cause: error },
      )
    const message = `cannot write ${file} (${code ?? String(error)}); choose another with ${flag}`
    throw new MillraceError('folder_unwritable', message, { cause: error })
  }
}

async function statIfThere(file: string): Promise<Stats | undefined> {
  try {
    return await stat(file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** The end of a chain of links to a file that does not exist. `realpath` resolves `..` after a link. */
async function endOfLinks(file: string): Promise<string> {
  const next = await readlink(file).catch(() => undefined)
  return next === undefined ? file : endOfLinks(isAbsolute(next) ? next : `${await realpath(dirname(file))}/${next}`)
}

/** Writes a partial file, and renames it once it is whole: a file that ends too early would look complete. */
async function replaceFile(
  chunks: AsyncIterable<string | Uint8Array>,
  file: string,
  before: Stats | undefined,
): Promise<void> {
  // A link stays a link, and a file that may not be written is not replaced either.
  const target = before ? await realpath(file) : await endOfLinks(file)
  if (before) await access(target, constants.W_OK)
  const partial = `${target}.partial`
  try {
    await pipeline(chunks, createWriteStream(partial, before && { mode: before.mode }))
    await rename(partial, target)
  } catch (error) {
    await rm(partial, { force: true }).catch(() => undefined)
    throw error
  }
}
