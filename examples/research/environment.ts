import { defineEnvironment, orchestrate, z } from 'millrace'
import { maxTowns, peopleOfProvince, provinceOf, readPage, searchPages } from './archive.ts'

const query = z.object({ query: z.string(), page: z.number().int().positive().default(1) })
const id = z.object({ id: z.string() })

/** Research with two agents: each searches an archive of its own and reads all of it, and the lead puts together what they find. */
export default defineEnvironment({
  name: 'research',
  description: 'Find out how a province grew, with two agents that read an archive each',
  options: z.object({
    count: z.coerce.number().int().positive().default(20),
    towns: z.coerce.number().int().min(1).max(maxTowns).default(150),
  }),
  task: z.object({ province: z.string(), index: z.number(), towns: z.number(), growth: z.number() }),

  *tasks({ count, towns }) {
    for (let index = 0; index < count; index += 1) {
      const growth = peopleOfProvince(index, towns, 1950) - peopleOfProvince(index, towns, 1900)
      yield { province: provinceOf(index), index, towns, growth }
    }
  },

  prompt: ({ task: { province } }) => `By how many people did the province of ${province} grow from 1900 to 1950?

Ask your agents, both at once:
- historian: Search for "${province}" and add up: how many people lived in all its towns in 1900?
- statistician: Search for "${province}" and add up: how many people lived in all its towns in 1950?

Then subtract the first number from the second. End with a line \`Answer: <number>\`.`,

  tools: {
    search_registers: {
      description: 'Lists the registers of 1900 about a province, 20 on each page of the list.',
      parameters: query,
      resume: 'reuse',
      run: (asked, { task }) => searchPages(asked, { ...task, year: 1900 }),
    },
    read_register: {
      description: 'Reads a register by its id.',
      parameters: id,
      resume: 'reuse',
      run: ({ id: wanted }, { task }) => readPage(wanted, { ...task, year: 1900 }),
    },
    search_yearbooks: {
      description: 'Lists the yearbooks of 1950 about a province, 20 on each page of the list.',
      parameters: query,
      resume: 'reuse',
      run: (asked, { task }) => searchPages(asked, { ...task, year: 1950 }),
    },
    read_yearbook: {
      description: 'Reads a yearbook by its id.',
      parameters: id,
      resume: 'reuse',
      run: ({ id: wanted }, { task }) => readPage(wanted, { ...task, year: 1950 }),
    },
  },

  agent: orchestrate({
    agents: {
      historian: {
        description: 'Finds out how something was in 1900, in the registers of the towns.',
        instructions: 'You search the registers and read every page that you find. End with a line `Answer: <number>`.',
        tools: ['search_registers', 'read_register'],
        share: 0.45,
      },
      statistician: {
        description: 'Finds out how something was in 1950, in the yearbooks of the towns.',
        instructions: 'You search the yearbooks and read every page that you find. End with a line `Answer: <number>`.',
        tools: ['search_yearbooks', 'read_yearbook'],
        share: 0.45,
      },
    },
    // The lead reads nothing itself.
    tools: [],
  }),

  // The lead and both agents together.
  limits: { maxTurns: 120 },

  reward: ({ task, answer }) => Number(/Answer:\s*(-?\d+)/.exec(answer)?.[1]) === task.growth,
})
