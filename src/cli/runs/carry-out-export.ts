import type { MillraceError } from '../../errors/index.ts'
import { exportSessions } from '../../gateway/index.ts'
import { andList } from '../../kit/index.ts'
import { exportRollouts, type FoundRun, type RunReader } from '../../store/index.ts'
import type { FlagTable, FlagValues, Invocation } from '../command-line/command.ts'
import { exitCodes, type ExitCode } from '../process/exit-codes.ts'
import { usageError } from '../command-line/flag-value.ts'
import type { CommandIo } from '../process/io.ts'
import type { Output } from '../process/output.ts'
import { SlowProgress } from '../process/slow-progress.ts'
import { nextStep } from './next-step.ts'
import { spoolLosses } from './spool-losses.ts'
import { isGatewayRun, locateRun, readRun, runsRoot } from './stored-run.ts'
import { writeOutputFile } from '../process/write-output-file.ts'
import { formatCount, formatQuantity } from '../format/count.ts'
import { rolloutFlags, sessionFlags, type exportFlags } from '../commands/export-command.ts'

/** How many damaged sessions or rollouts are listed on standard error, a line each. */
const maxShownDamaged = 20

/** Carries out `millrace export`: from its flags to its exit code. */
export async function carryOutExport(
  { arguments: [name = ''], flags }: Invocation<typeof exportFlags>,
  io: CommandIo,
): Promise<ExitCode> {
  const found = await locateRun(name, runsRoot(flags.runs, io), io)
  const isGateway = isGatewayRun(found)
  refuseFlags(found, flags, isGateway ? rolloutFlags : sessionFlags)
  if (flags.format === 'binary' && flags.output === undefined && io.stdout.isTTY) {
    throw usageError('--format binary is nothing for a terminal; write it to a file with -o')
  }
  if (flags.tokens && found.run.config['captureTokens'] !== true) void io.stderr.line(noTokens(found))
  const damaged = new Damaged(isGateway ? 'session' : 'rollout', io.stderr)
  const isWhole = await readRun(found, io, async (reader) => {
    await exportRun({ reader, flags, damaged, io, isGateway })
    if (!isGateway && found.run.state !== 'complete' && reader.counts().ended === 0) {
      void io.stderr.line(`no rollout of run ${found.name} has ended yet; ${nextStep(found)}`)
    }
    const losses = isGateway ? spoolLosses(reader, oldestStart(reader, flags)) : []
    for (const loss of losses) void io.stderr.line(loss)
    return losses.length === 0 && !reader.spoolProblem
  })
  return isWhole && damaged.count === 0 ? exitCodes.ok : exitCodes.failed
}

interface Exported {
  readonly reader: RunReader
  readonly flags: FlagValues<typeof rolloutFlags & typeof sessionFlags> & { readonly output?: string }
  readonly damaged: Damaged
  readonly io: CommandIo
  readonly isGateway: boolean
}

async function exportRun({ reader, flags, damaged, io, isGateway }: Exported): Promise<void> {
  const { output } = flags
  const sessions = () => sessionChunks(reader, flags, damaged.add)
  const rollouts = () => rolloutLines(reader, flags, damaged.add)
  if (output === undefined) return await writeAll(isGateway ? sessions() : rollouts(), io.stdout)
  const chunks = isGateway ? sessions() : counted(rollouts(), damaged, io.stderr)
  let written = ''
  const told = telling(chunks, (what) => (written = what))
  const where = await writeOutputFile(told, { name: output, flag: '-o', cwd: io.cwd })
  void io.stderr.line(`wrote ${written} to ${where}`)
}

/** The start of the oldest session that is exported. */
function oldestStart({ sessions }: RunReader, flags: FlagValues<typeof sessionFlags>): number {
  const { tenant, session, group } = flags
  const query = { ...(tenant !== undefined && { tenant }), ...(group !== undefined && { group }), limit: 1 }
  const oldest = session === undefined ? sessions.sessions(query)[0] : sessions.session(session)
  return oldest?.startedAt ?? 0
}

/**
 * Reports the sessions or rollouts that are missing. Beyond `maxShownDamaged` it only counts: the export has a row for each.
 */
class Damaged {
  readonly #what: 'session' | 'rollout'
  readonly #stderr: Output
  count = 0

  constructor(what: 'session' | 'rollout', stderr: Output) {
    this.#what = what
    this.#stderr = stderr
  }

  readonly add = (id: string, { rawMessage, cause }: MillraceError): void => {
    this.count += 1
    if (this.count === maxShownDamaged + 1) void this.#stderr.line('more are not shown: see the rows of kind "damaged"')
    if (this.count > maxShownDamaged) return
    const detail = cause instanceof Error ? ` (${cause.message})` : ''
    const leftOut = this.#what === 'session' ? 'left out from there on' : 'left out'
    void this.#stderr.line(`${this.#what} ${id} is damaged, and ${leftOut}: ${rawMessage}${detail}`)
  }
}

function noTokens({ name }: FoundRun): string {
  return `run ${name} was made without --tokens, so its turns have none; \`eval --tokens\` makes a run that has them`
}

/** The chunks of an export. The return value says in words what was written. */
type Chunks = AsyncGenerator<string | Uint8Array, string, void>

function rolloutLines(
  reader: RunReader,
  flags: FlagValues<typeof rolloutFlags>,
  onDamaged: Damaged['add'],
): AsyncIterable<string> {
  const taskRows = flags['no-task-rows'] !== true
  return exportRollouts(reader, { format: 'jsonl', tokens: flags.tokens === true, taskRows, onDamaged })
}

async function* sessionChunks(
  reader: RunReader,
  flags: FlagValues<typeof sessionFlags>,
  onDamaged: Damaged['add'],
): Chunks {
  const { tenant, session, group, discount, trees, 'main-tree': mainTree } = flags
  if (tenant !== undefined) requireTenant(reader, tenant)
  else if (group !== undefined) requireOneTenant(reader, group)
  const skipWithoutTokens = flags['skip-without-tokens'] === true
  const end = yield* exportSessions(reader, {
    rows: flags.rows ?? 'interactions',
    format: flags.format ?? 'jsonl',
    skipWithoutTokens,
    onDamaged,
    ...(tenant !== undefined && { tenant }),
    ...(session !== undefined && { session }),
    ...(group !== undefined && { group }),
    ...(discount !== undefined && { discount }),
    ...(mainTree && { mainTree }),
    ...(trees && { trees }),
    ...(flags['include-discarded'] && { include: 'discarded' }),
  })
  const { rows, sideRows, sessions, emptySessions, damagedSessions, withoutTokens, laterTurns, driftedTurns } = end
  // Only training rows leave them out.
  const leftOut = flags.rows === 'merged' && skipWithoutTokens ? withoutTokens : 0
  const odd = [
    ...(sideRows > 0 ? [`${formatQuantity(sideRows, 'row')} of side calls`] : []),
    ...(emptySessions > 0 ? [`${formatCount(emptySessions)} empty`] : []),
    ...(damagedSessions > 0 ? [`${formatCount(damagedSessions)} damaged`] : []),
    ...(leftOut > 0 ? [`${formatCount(leftOut)} ${leftOut === 1 ? 'reply' : 'replies'} without tokens left out`] : []),
    ...(driftedTurns > 0
      ? [`${formatCount(driftedTurns)} of ${formatQuantity(laterTurns, 'later turn')} drifted`]
      : []),
  ]
  const among = odd.length > 0 ? ` (${odd.join(', ')})` : ''
  return `${formatQuantity(rows, 'row')} of ${formatQuantity(sessions, 'session')}${among}`
}

function requireTenant({ sessions }: RunReader, tenant: string): void {
  if (sessions.sessions({ tenant, limit: 1 }).length > 0) return
  throw usageError(`there is no session of tenant ${tenant}; leave --tenant out to export all there are`)
}

/** Throws if several tenants have a group of this name: groups of different tenants must not be compared with each other. */
function requireOneTenant({ sessions }: RunReader, group: string): void {
  const tenants = new Set<string>()
  for (const { tenant } of sessions.each({ group })) {
    tenants.add(tenant)
    if (tenants.size < 2) continue
    throw usageError(`tenants ${andList([...tenants].toSorted())} each have a group ${group}; choose one with --tenant`)
  }
}

/** Refuses a flag that means nothing for this kind of run: whoever gives it is mistaken about the run. */
function refuseFlags(found: FoundRun, flags: Readonly<Record<string, unknown>>, unfit: FlagTable): void {
  // `--format jsonl` is allowed for rollouts: it is their only format.
  const given = Object.keys(unfit).find((flag) => flags[flag] !== undefined && flags[flag] !== 'jsonl')
  if (given === undefined) return
  const { name } = found
  throw usageError(
    isGatewayRun(found)
      ? `--${given} is for rollouts, and run ${name} holds the sessions of a gateway, which have all of it; leave it out`
      : `--${given} is for the sessions of a gateway, and run ${name} holds rollouts; leave it out`,
  )
}

async function writeAll(chunks: AsyncIterable<string | Uint8Array>, output: Output): Promise<void> {
  for await (const chunk of chunks) {
    if (output.readerGone.aborted) return
    await output.write(chunk)
  }
}

async function* counted(lines: AsyncIterable<string>, damaged: Damaged, stderr: Output): Chunks {
  using progress = new SlowProgress(stderr, 'writing rollouts')
  for await (const line of lines) {
    progress.add()
    yield line
  }
  const among = damaged.count > 0 ? ` (${formatCount(damaged.count)} damaged)` : ''
  return formatQuantity(progress.count, 'rollout') + among
}

async function* telling(chunks: Chunks, tell: (what: string) => void): AsyncGenerator<string | Uint8Array> {
  tell(yield* chunks)
}
