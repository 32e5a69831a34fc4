import { settleHeapForRollouts } from '../../../kit/index.ts'
import { RolloutServer, requireAccessKey, requireFreePort, RolloutService } from '../../../serve/index.ts'
import { Logger } from '../../../telemetry/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { defaultPort, type ServeFlags } from './serve-command.ts'
import { optionsFromFlags } from '../eval/options-from-flags.ts'
import type { ExitCode } from '../../terminal/exit-codes.ts'
import { exitNotice } from '../../terminal/signals.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { keyIn } from '../../command-line/flag-value.ts'
import { ServerLifetime, type Served } from './server-lifetime.ts'

const watchServersMs = 500

export async function runServe(invocation: Invocation<ServeFlags>, io: CommandIo): Promise<ExitCode> {
  settleHeapForRollouts()
  const { flags } = invocation
  const options = await optionsFromFlags(invocation, io)
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
    await using service = await RolloutService.open({
      ...options,
      ...(flags['max-queued'] !== undefined && { bounds: { maxQueuedRollouts: flags['max-queued'] } }),
      onSettled: (record) => logger.rolloutSettled(service.info.name, record),
      signal: lifetime.signal,
    })
    const served: Served = {
      failure: service.failure,
      drain: () => service.drain(),
      loops: () => {
        const { lag, storeLag } = service.status()
        return { front: lag, store: storeLag }
      },
      workers: () => service.status().workers,
    }
    lifetime.begin(served, () => {
      logger.lines.info({ running: service.status().running }, 'draining: running rollouts may end')
    })
    await using httpServer = await RolloutServer.open({
      service,
      port,
      host,
      ...(accessKey !== undefined && { accessKey }),
      onFault: (error) => logger.lines.error({ err: error }, 'a request failed'),
    })
    const { name: run, notices } = service.info
    for (const notice of notices) logger.lines.info({ run }, notice)
    void io.stdout.line(`serving on ${io.stdout.style.bold(httpServer.url)} (run ${run})`)
    using _servers = watchServers(service, logger)
    const how = await lifetime.end()
    // After a second signal, clients that still wait for replies are told so before the HTTP server closes.
    if (how === 'stopped') await service.close()
    return lifetime.exitCode(how)
  } catch (error) {
    return lifetime.exitCodeFor(error)
  }
}

function watchServers(service: RolloutService, logger: Logger): Disposable {
  const away = new Set<string>()
  const look = (): void => {
    for (const { server, state, waiting, awayBecause } of service.status().servers) {
      if (state === 'away' && !away.has(server)) {
        away.add(server)
        logger.lines.warn({ server, waiting, why: awayBecause }, 'a tool server is away: rollouts that need it wait')
      } else if (state !== 'away' && away.delete(server)) {
        logger.lines.info({ server }, 'the tool server is back')
      }
    }
  }
  const timer = setInterval(look, watchServersMs).unref()
  return { [Symbol.dispose]: () => clearInterval(timer) }
}
