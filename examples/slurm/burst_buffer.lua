--[[
Hayase as a burst buffer of Slurm (slurm.conf: BurstBufferType=burst_buffer/lua; this file beside slurm.conf).

A job asks for it in its script:

    #BB_LUA hayase storage=/local/scratch shared=300MiB local=100MiB

Before the job starts, slurmctld runs `hayase up` for its hosts, over ssh and as the job's user; the job finds
$HAYASE_JOB, $HAYASE_SHARED and $HAYASE_LOCAL in its environment. After the job, whatever became of it, `hayase
down`. A start that fails holds the job, with the reason in `squeue` and `scontrol show job`.

The user needs ssh without a password from the controller to the job's hosts, and from each of them to the others.
]]

local hayase = "/opt/hayase"
local ssh = os.getenv("HAYASE_SSH") or "ssh"
-- Job directories lie on the controller only: hosts make their own.
local place = "/tmp/hayase-bb"

-- Words for a shell.
local function quote(word)
    return "'" .. tostring(word):gsub("'", "'\\''") .. "'"
end

-- Runs a command; what it printed, and whether it worked.
local function run(command)
    local pipe = io.popen("{ " .. command .. "; } 2>&1; echo \"status $?\"", "r")
    local text = pipe:read("*a")
    pipe:close()
    local out, status = text:match("^(.*)status (%d+)%s*$")
    return out or text, status == "0"
end

-- The options in the job's `#BB_LUA hayase` line; nil when there is none, and why not when it can not be read.
local function options(script)
    local file = io.open(script, "r")
    if not file then return nil, "the job script can not be read" end
    local found, why
    for line in file:lines() do
        local words = line:match("^#BB_LUA%s+hayase%s*(.*)$")
        if words then
            found = {}
            for word in words:gmatch("%S+") do
                local key, value = word:match("^(%a+)=([%w%./_-]+)$")
                if key ~= "storage" and key ~= "shared" and key ~= "local" then
                    why = "#BB_LUA hayase: `" .. word .. "` is none of storage=, shared= and local="
                else
                    found[key] = value
                end
            end
        end
    end
    file:close()
    return found, why
end

-- Who and where: of Slurm's own record of the job. Not of `scontrol show job`, in which the job's name stands as its user
-- likes it, also as `UserId=root(0)`. All tasks of an array are listed.
local function job(id)
    local text = run("squeue -h -r -t all -j " .. quote(id) .. " -o '%A %U %N' 2>/dev/null")
    for line in text:gmatch("[^\n]+") do
        local found, uid, hosts = line:match("^%s*(%d+)%s+(%d+)%s*(%S*)%s*$")
        if found == tostring(id) then
            local user = (run("id -un " .. uid .. " 2>/dev/null")):match("^(%S+)%s*$")
            return user, hosts ~= "" and hosts or nil
        end
    end
    return nil, nil
end

local function name(id) return "bb-" .. id end
local function areas(id) return "/tmp/hayase-areas-" .. id end

-- `hayase` as the job's user.
local function as_user(user, words)
    local command = "HAYASE_RUNTIME_DIR=\"" .. place .. "-$(id -u " .. quote(user) .. ")\" " .. quote(hayase)
    for _, word in ipairs(words) do command = command .. " " .. quote(word) end
    return run("runuser -u " .. quote(user) .. " -- sh -c " .. quote(command))
end

-- At submission: refuse what can not be read.
function slurm_bb_job_process(script)
    local _, why = options(script)
    if why then return slurm.ERROR, why end
    return slurm.SUCCESS
end

-- The job's environment.
function slurm_bb_paths(id, script, path_file)
    if options(script) then
        local file = io.open(path_file, "a")
        file:write("HAYASE_SHARED=" .. areas(id) .. "/shared\n")
        file:write("HAYASE_LOCAL=" .. areas(id) .. "/local\n")
        file:close()
    end
    return slurm.SUCCESS
end

-- The hosts are known, the job has not begun.
function slurm_bb_pre_run(id, script)
    local asked = options(script)
    if not asked then return slurm.SUCCESS end
    local user, hosts = job(id)
    if not user or not hosts then return slurm.ERROR, "no hosts are known of job " .. id end
    local words = { "up", "--job", name(id), "--hosts", hosts, "--ssh", ssh, "--mount", areas(id) }
    for _, key in ipairs({ "storage", "shared", "local" }) do
        if asked[key] then
            table.insert(words, "--" .. key)
            table.insert(words, asked[key])
        end
    end
    local said, is_up = as_user(user, words)
    if not is_up then return slurm.ERROR, said end
    return slurm.SUCCESS
end

-- The job has ended; also called when it is cancelled, and when nothing was started.
local function down(id, script)
    if not options(script) then return slurm.SUCCESS end
    local user = job(id)
    if not user then
        slurm.log_error("hayase: job %s: its user is not known, so nothing is ended", id)
        return slurm.SUCCESS
    end
    local said, is_down = as_user(user, { "down", "--job", name(id) })
    -- What was kept stays in its storage; the job must not wait for that. The second call finds no job any more.
    if not is_down and not said:find("already down", 1, true) then
        slurm.log_error("hayase: job %s: %s", id, said)
    end
    return slurm.SUCCESS
end
function slurm_bb_post_run(id, script) return down(id, script) end
function slurm_bb_job_teardown(id, script, _hurry) return down(id, script) end

-- Nothing to do in these: there are no pools, and staging is the job's own.
function slurm_bb_pools() return slurm.SUCCESS end
function slurm_bb_setup() return slurm.SUCCESS end
function slurm_bb_data_in() return slurm.SUCCESS end
function slurm_bb_data_out() return slurm.SUCCESS end
function slurm_bb_real_size() return slurm.SUCCESS end
function slurm_bb_get_status() return slurm.SUCCESS, "hayase" end
