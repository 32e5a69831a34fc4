import type { MillraceError } from '../errors/index.ts'
import { damagedMessages, decoded, isDamage } from './damage.ts'
import { damagedRollout, type TaskNames } from './damaged-rollout.ts'
import { rolloutLine } from './_rollout-line.ts'
import { storedMessage } from './_stored-message.ts'
import { storedRecord } from './_stored-record.ts'
import type { BareRecord, StoredText } from './stored-run.ts'

export interface StoredLineOptions {
  readonly tasks: TaskNames
  /** Makes JSON to put after the messages. */
  readonly extra?: ((stored: StoredText, record: BareRecord) => string) | undefined
  readonly onDamaged?: ((rollout: string, error: MillraceError) => void) | undefined
}

/** The line of a stored result, or a line of kind `damaged` if it cannot be read, so that the export goes on. */
export function storedLine(stored: StoredText, options: StoredLineOptions): string {
  try {
    return wholeLine(stored, options.extra)
  } catch (error) {
    if (!isDamage(error)) throw error
    options.onDamaged?.(stored.rollout, error)
    return `${JSON.stringify(damagedRollout(options.tasks, stored, error))}\n`
  }
}

/** Texts are passed on as they are, so they are checked first: a text that is no record would spoil the line. */
function wholeLine(stored: StoredText, extra: StoredLineOptions['extra']): string {
  const { rollout, text } = stored
  const { record, messages } = text
  const checked = storedRecord(rollout, record)
  decoded(
    () => {
      for (const message of messages) storedMessage(message)
    },
    (cause) => damagedMessages(rollout, undefined, cause),
  )
  return rolloutLine(record, messages, extra?.(stored, checked))
}
