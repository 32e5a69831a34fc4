import type { Summary } from '../../eval/index.ts'
import type { FoundRun } from '../../store/index.ts'
import { formatQuantity } from '../format/count.ts'
import type { CommandIo } from '../process/io.ts'
import { runReference } from './stored-run.ts'

/** Says on standard error which rollouts were left out, and which command shows the reason. */
export function nameUnreadable(
  { unreadable }: Pick<Summary, 'unreadable'>,
  { found, io, tells }: { readonly found: FoundRun; readonly io: CommandIo; readonly tells: 'show' | 'replay' },
): void {
  if (!unreadable) return
  const { rollouts, ids } = unreadable
  const more = rollouts > ids.length ? ` and ${formatQuantity(rollouts - ids.length, 'other')}` : ''
  const why = `${io.program} ${tells} ${runReference(found.folder, io)} ${ids[0]}`
  const which = rollouts === 1 ? 'it' : 'they'
  void io.stderr.line(`left out, because ${which} cannot be read: ${ids.join(', ')}${more}; why:  ${why}`)
}
