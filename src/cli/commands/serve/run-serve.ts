import { type LoopLagWindow, settleHeapForRollouts } from '../../../kit/index.ts'
import {
  type RolloutService,
  RolloutServer,
  requireAccessKey,
  requireFreePort,
  ServedAgents,
} from '../../../serve/index.ts'
import { Logger } from '../../../telemetry/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { defaultPort, type ServeFlags } from './serve-command.ts'
import type { ExitCode } from '../../terminal/exit-codes.ts'
import { exitNotice } from '../../terminal/signals.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { keyIn, usageError } from '../../command-line/flag-value.ts'
import { servedEnvironments } from './served-environments.ts'
import { ServerLifetime, type Served } from './server-lifetime.ts'

const watchServersMs = 500

export async function runServe(invocation: Invocation<ServeFlags>, io: CommandIo): Promise<ExitCode> {
  settleHeapForRollouts()
  const { flags } = invocation
  if (flags['nemo-gym-failures'] !== undefined && !flags['nemo-gym']) {
    throw usageError('--nemo-gym-failures is for --nemo-gym: give both, or neither')
  }
  const environments = await servedEnvironments(invocation, io)
  const { host = '127.0.0.1', port = defaultPort } = flags
  const accessKey = keyIn('access-key-env', flags['access-key-env'], 'MILLRACE_API_KEY', io)
  // Checked before a run is made, or an earlier one is continued.
  requireAccessKey(host, accessKey)
  await requireFreePort(host, port)
  await using logger = new Logger({ level: flags['log-level'] })
  using lifetime = new ServerLifetime(io, logger, 'server')
  using _exit = exitNotice(
    io,
    'The same command resumes the accepted rollouts, and would end in the same way: with --workers only one rollout is lost.',
  )
  try {
    await using agents = await ServedAgents.open(
      Array.from(environments, (options) => ({
        ...options,
        onSettled: (record, run) => logger.rolloutSettled(run, record),
        signal: lifetime.signal,
      })),
    )
    lifetime.begin(servedBy(agents), () => {
      const running = agents.entries.reduce((sum, [, service]) => sum + service.status().running, 0)
      logger.lines.info({ running }, 'draining: running rollouts may end')
    })
    await using httpServer = await RolloutServer.open({
      service: agents,
      port,
      host,
      ...(accessKey !== undefined && { accessKey }),
      ...(flags['nemo-gym'] && { nemoGym: { failures: flags['nemo-gym-failures'] ?? 'class' } }),
      onFault: (error) => logger.lines.error({ err: error }, 'a request failed'),
    })
    const runs = agents.entries.map(([, { info }]) => info)
    for (const { name: run, notices } of runs) for (const notice of notices) logger.lines.info({ run }, notice)
    const names = runs.map(({ name }) => name).join(', ')
    void io.stdout.line(
      `serving on ${io.stdout.style.bold(httpServer.url)} (${runs.length === 1 ? 'run' : 'runs'} ${names})`,
    )
    using _servers = watchServers(agents, logger)
    const how = await lifetime.end()
    // After a second signal, clients that still wait for replies are told so before the HTTP server closes.
    if (how === 'stopped') await agents.close()
    const failed = agents.entries.find(([, { failure }]) => failure.aborted)
    if (failed) throw failed[1].failure.reason
    return lifetime.exitCode(how)
  } catch (error) {
    return lifetime.exitCodeFor(error)
  }
}

function servedBy(agents: ServedAgents): Served {
  const { entries } = agents
  const [[, only]] = entries.length === 1 ? entries : [[]]
  return {
    failure: agents.failure,
    drain: () => agents.drain(),
    loops: () => (only ? loopsOf(only) : Object.assign({}, ...entries.map(([name, each]) => namedLoops(name, each)))),
    workers: () => only?.status().workers ?? [],
  }
}

function loopsOf(service: RolloutService): Record<string, LoopLagWindow> {
  const { lag, storeLag } = service.status()
  return { front: lag, store: storeLag }
}

/** Of one service among several, whose workers have the same numbers. */
function namedLoops(name: string, service: RolloutService): Record<string, LoopLagWindow> {
  const { lag, storeLag, workers } = service.status()
  const loops: Record<string, LoopLagWindow> = { front: lag, [`store of ${name}`]: storeLag }
  for (const { id, state, lag: own } of workers) {
    loops[`worker-${id} of ${name}`] = state === 'silent' ? { ...own, maxMs: Infinity } : own
  }
  return loops
}

function watchServers(agents: ServedAgents, logger: Logger): Disposable {
  const away = new Set<string>()
  const look = (): void => {
    for (const [agent, service] of agents.entries) {
      for (const { server, state, waiting, awayBecause } of service.status().servers) {
        const key = `${agent}\n${server}`
        if (state === 'away' && !away.has(key)) {
          away.add(key)
          logger.lines.warn({ server, waiting, why: awayBecause }, 'a tool server is away: rollouts that need it wait')
        } else if (state !== 'away' && away.delete(key)) {
          logger.lines.info({ server }, 'the tool server is back')
        }
      }
    }
  }
  const timer = setInterval(look, watchServersMs).unref()
  return { [Symbol.dispose]: () => clearInterval(timer) }
}
