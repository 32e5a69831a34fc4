import { MillraceError } from '../../errors/index.ts'
import { readJudgeCalls } from '../../rollout/index.ts'
import { outcomeNames, textOf, type Outcome } from '../../schema/index.ts'
import {
  damagedRollout,
  isDamage,
  unlessDamaged,
  type DamagedRollout,
  type FoundRun,
  type RunReader,
  type StoredAttempt,
  type StoredRollout,
} from '../../store/index.ts'
import { defineCommand } from '../command-line/command.ts'
import { runsFlag } from '../command-line/common-flags.ts'
import { writeSummary } from '../eval/output/write-summary.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { usageError } from '../command-line/flag-value.ts'
import { columns } from '../format/columns.ts'
import { findRollout } from '../runs/find-rollout.ts'
import { givenUpAttempts } from '../runs/given-up.ts'
import { formatCount } from '../format/count.ts'
import { printableLine } from '../format/printable.ts'
import { formatScore } from '../format/score.ts'
import { showSession, showSessions, type ShownRun } from '../runs/show-gateway.ts'
import { howFar, plannedRollouts } from '../runs/next-step.ts'
import { isGatewayRun, locateRun, readRun, runsRoot, storedConfig } from '../runs/stored-run.ts'
import { storedSummary } from '../runs/stored-summary.ts'
import { missingOf, transcriptLines, type Transcript } from '../runs/transcript.ts'

export const showCommand = defineCommand({
  name: 'show',
  description:
    'Shows a run: its results so far, the rollouts that ended in one way, or the transcript of a single rollout with ' +
    'every message, tool call, reward and attempt. Of a gateway: its newest sessions, or what was said in one. Works while ' +
    'the run goes on.',
  arguments: [
    { name: 'run', required: true, help: 'a run: its name, or the path of its folder' },
    {
      name: 'rollout',
      required: false,
      help: 'a rollout to read, such as 12-0 (task 12, first attempt), a task that has one alone, or a session of a gateway',
    },
  ],
  flags: {
    outcome: {
      kind: 'choice',
      value: '<outcome>',
      choices: [...outcomeNames, 'any'],
      group: 'What to show',
      help: `List the rollouts that ended so: ${outcomeNames.join(', ')}, or any.`,
    },
    limit: {
      kind: 'integer',
      value: '<count>',
      min: 1,
      group: 'What to show',
      help: 'Rollouts or sessions to list.',
      default: '20',
    },
    json: {
      kind: 'switch',
      group: 'What to show',
      help: 'As JSON: the summary, the listed rollouts, or the rollout or session.',
    },
    runs: runsFlag,
  },
  examples: [
    { command: 'millrace show nightly', explanation: 'the results of the run "nightly"' },
    { command: 'millrace show nightly 12-0', explanation: 'what was said in the first attempt at task 12' },
    { command: 'millrace show nightly --outcome model_error', explanation: 'the rollouts that the backend failed' },
    { command: 'millrace show gateway --limit 100', explanation: 'the newest sessions of the gateway' },
    { command: 'millrace show nightly --json | jq .score', explanation: 'the score, for a script' },
  ],
  exitCodes: [
    { code: exitCodes.ok, meaning: 'shown' },
    { code: exitCodes.failed, meaning: 'there is no such run, rollout or session, or it cannot be read' },
    { code: exitCodes.usage, meaning: 'the command line is wrong' },
  ],
  async run({ arguments: [name = '', rollout], flags }, io) {
    const found = await locateRun(name, runsRoot(flags.runs, io), io)
    const asJson = flags.json === true
    await readRun(found, io, async (reader) => {
      const shown: ShownRun = { found, reader, io, asJson }
      if (isGatewayRun(found)) {
        if (flags.outcome !== undefined) throw noOutcomes(found)
        await (rollout === undefined ? showSessions(flags.limit ?? 20, shown) : showSession(rollout, shown))
      } else if (rollout !== undefined) await showRollout(rollout, shown)
      else if (flags.outcome !== undefined) {
        const outcome = flags.outcome === 'any' ? undefined : flags.outcome
        await showList({ outcome, limit: flags.limit ?? 20 }, shown)
      } else showSummary(shown)
    })
    return exitCodes.ok
  },
})

function showSummary({ found, reader, io, asJson }: ShownRun): void {
  const summary = storedSummary(found, reader, { now: Date.now(), stderr: io.stderr })
  const { ended } = reader.counts()
  if (asJson) return void io.stdout.line(JSON.stringify({ ...summary, ...plannedRollouts(found, ended) }))
  writeSummary(summary, io)
  const isOpen = found.run.state !== 'complete' && !storedConfig(found).isServed
  if (isOpen) void io.stdout.line(howFar(found, ended))
}

async function showList(
  { outcome, limit }: { outcome: Outcome | undefined; limit: number },
  { found, reader, io, asJson }: ShownRun,
): Promise<void> {
  const rows: string[][] = []
  let shown = 0
  for (const stored of reader.ended()) {
    if (outcome !== undefined && stored.outcome !== outcome) continue
    if (shown === limit) break
    shown += 1
    const record = recordOrDamage(reader, stored)
    if (asJson) {
      await io.stdout.line(JSON.stringify(record))
      continue
    }
    const reward = record.reward === null ? '–' : formatScore(record.reward)
    const turns = 'turns' in record ? String(record.turns) : '–'
    rows.push([record.id, printableLine(record.task.id ?? ''), record.outcome, reward, turns, whyOf(record)])
  }
  if (asJson) return
  const { ended, outcomes } = reader.counts()
  const total = outcome === undefined ? ended : (outcomes[outcome] ?? 0)
  if (shown === 0) {
    void io.stdout.line(`no rollout of ${found.name} has ended${outcome === undefined ? '' : ` as ${outcome}`}`)
    return
  }
  for (const line of columns({
    columns: [
      { title: 'rollout' },
      { title: 'task', shrinks: true },
      { title: 'outcome' },
      { title: 'reward', align: 'right' },
      { title: 'turns', align: 'right' },
      { title: 'error', shrinks: true },
    ],
    rows,
    width: io.stdout.isTTY ? io.stdout.columns : Number.POSITIVE_INFINITY,
    style: io.stdout.style,
  })) {
    void io.stdout.line(line)
  }
  if (total > shown) void io.stdout.line(io.stdout.style.dim(`${formatCount(total - shown)} more; --limit shows them`))
}

/** Why the rollout ended as it did, if that is known. */
function whyOf(record: StoredRollout['record'] | DamagedRollout): string {
  if (record.error) return printableLine(record.error.message)
  return 'cutOffIn' in record && record.cutOffIn !== undefined ? `cut off in ${printableLine(record.cutOffIn)}` : ''
}

/** The record of a rollout. A damaged record affects only its own row. */
function recordOrDamage(reader: RunReader, stored: StoredRollout): StoredRollout['record'] | DamagedRollout {
  try {
    return stored.record
  } catch (error) {
    if (isDamage(error)) return damagedRollout(reader, stored, error)
    throw error
  }
}

async function showRollout(given: string, { found, reader, io, asJson }: ShownRun): Promise<void> {
  const rollout = findRollout(given, reader, { found, stderr: io.stderr })
  const attempts = reader.attempts(rollout)
  const accepted = reader.rollout(rollout)
  const shown = attempts.find(({ attempt }) => attempt === accepted?.attempt) ?? attempts.at(-1)
  if (!shown) throw new MillraceError('internal', `${rollout} was found and is not there`)
  const givenUp = givenUpAttempts(
    reader,
    attempts.filter(({ attempt }) => attempt !== accepted?.attempt),
  )
  const transcript: Transcript = {
    rollout,
    record: accepted ?? shown.end?.record,
    waitsFor: accepted || givenUp.has(shown.attempt) ? undefined : missingOf(shown),
    nodes: reader.nodes(rollout, shown.attempt),
    attempts,
    givenUp,
    children: reader.children(rollout).filter(({ attempt }) => attempt === shown.attempt),
    verdicts: (unlessDamaged(() => readJudgeCalls(reader, rollout, shown.attempt)) ?? []).map(({ model, reply }) => ({
      model,
      said: textOf(reply),
    })),
  }
  if (asJson) {
    const messages = accepted?.messages ?? transcript.nodes.map(({ message }) => message)
    const { record, waitsFor, verdicts } = transcript
    const shownAttempts = attempts.map((attempt) => brief(attempt, givenUp.get(attempt.attempt)))
    await io.stdout.line(
      JSON.stringify({ ...record, id: rollout, waitsFor, messages, verdicts, attempts: shownAttempts }),
    )
    return
  }
  for (const line of transcriptLines(transcript, io.stdout.style)) {
    if (io.stdout.readerGone.aborted) return
    await io.stdout.line(line)
  }
}

function noOutcomes({ name }: FoundRun): MillraceError {
  return usageError(`--outcome is for rollouts, and run ${name} holds the sessions of a gateway; leave it out`)
}

function brief({ attempt, startedAt, end, discarded }: StoredAttempt, givenUp: string | undefined): object {
  const error = unlessDamaged(() => end?.record)?.error
  return { attempt, startedAt, endedAt: end?.at, outcome: end?.outcome, error, discarded, givenUp }
}
