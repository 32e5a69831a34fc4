import { MillraceError } from '../errors/index.ts'
import { familyPieces, type RunReader } from '../store/index.ts'
import type { RecordForm } from './codec-messages.ts'

/** One rollout as JSON, in pieces, straight from the run's database. Runs on a codec thread. */
export function* encodeRollout(reader: RunReader, id: string, form: RecordForm): Generator<string, void, void> {
  const record = reader.rollout(id)
  if (!record)
    throw new MillraceError('internal', `rollout ${id} has ended and is not in the store; please report this`)
  if (form === 'record') {
    yield JSON.stringify(record)
    return
  }
  yield JSON.stringify(record).slice(0, -1)
  yield* familyPieces(reader, record, form === 'tokens' ? 'numbers' : 'base64')
  yield '}'
}
